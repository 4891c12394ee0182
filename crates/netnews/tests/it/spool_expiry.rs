//! Expiry worked out by hand: six articles, three passes, kept for one.

use std::num::NonZeroU64;

use crate::spool_scene::{Scene, assert_right, config, files_below, phases, run};
use netnews::feed::{Feed, FeedShape, FeedWriter, Origin};
use netnews::spool::{Keep, NetnewsConfig, Removal, Storage};

/// Two articles a pass; 3 is posted to two groups and cancelled by 5; 6 supersedes 4.
fn feed(scene: &Scene) -> Feed {
    let shape = FeedShape { batch_articles: NonZeroU64::new(2).unwrap(), packed: false };
    let mut writer = FeedWriter::create(scene.path("feed"), shape).unwrap();
    let articles = [
        ("<1@h>", "a.b", ""),
        ("<2@h>", "c,a.b", ""),
        ("<3@h>", "c,a.b", ""),
        ("<4@h>", "c", ""),
        ("<5@h>", "c", "Control: cancel <3@h>\n"),
        ("<6@h>", "c", "Supersedes: <4@h>\n"),
    ];
    for (id, groups, more) in articles {
        let text = format!(
            "Path: p\nNewsgroups: {groups}\nMessage-ID: {id}\nDate: Tue, 1 Aug 1995 00:00:10 GMT\n{more}\nx\n"
        );
        writer.write(id.as_bytes(), text.as_bytes()).unwrap();
    }
    writer.finish(Origin::Import { source: "by hand".to_owned(), broken: Default::default() }, 0).unwrap()
}

#[test]
fn history_active_and_the_list_are_what_they_must_be_to_the_letter() {
    for removal in [Removal::Dumbrm, Removal::Fastrm] {
        let scene = Scene::new();
        let feed = feed(&scene);
        let storage = Storage::of(scene.fs("target"));
        let outcome = run(&NetnewsConfig { removal, ..config(3, 1, Keep::Keep) }, &storage, &feed);
        assert_right(&storage, &feed);
        let lib = |name: &str| {
            let path = scene.path("target/crumb-netnews-s/lib").join(name);
            std::fs::read_to_string(path).unwrap()
        };
        // Pass 2 expires 1 and 2; in pass 3, 3 and 4 are cancelled and superseded before they could expire.
        let history = "<1@h>\t807235200~-~807235210\n\
                       <2@h>\t807235200~-~807235210\n\
                       <5@h>\t807321600~-~807235210\tcontrol/1\n\
                       <3@h>\t807278400~-~807278400\n\
                       <6@h>\t807321600~-~807235210\tc/4\n\
                       <4@h>\t807278400~-~807278400\n";
        assert_eq!(lib("history"), history);
        let active = "a.b 0000000003 0000000004 y\n\
                      c 0000000004 0000000004 y\n\
                      control 0000000001 0000000001 y\n";
        assert_eq!(lib("active"), active);
        assert_eq!(lib("expire.list"), "");
        let files: Vec<String> =
            files_below(&scene.path("target/crumb-netnews-s/articles")).into_keys().collect();
        assert_eq!(files, ["c/4", "control/1"]);
        let counts = outcome.part.counts;
        assert_eq!((counts.expire.articles, counts.expire.names, counts.expire.names_missing), (2, 3, 0));
        assert_eq!(
            (counts.unbatch.cancelled, counts.unbatch.superseded, counts.unbatch.names_removed),
            (1, 1, 3)
        );
        let expired: Vec<(u32, u64)> =
            phases(&outcome, "expire").iter().map(|phase| (phase.pass, phase.items)).collect();
        assert_eq!(expired, [(2, 3), (3, 0)]);
    }
}

#[test]
fn the_list_is_in_the_order_of_deletion_by_history_or_by_directory() {
    for (removal, expected) in
        [(Removal::Dumbrm, "a/b/1\nc/1\na/b/2\n"), (Removal::Fastrm, "a/b/1\na/b/2\nc/1\n")]
    {
        let scene = Scene::new();
        let feed = feed(&scene);
        let storage = Storage::of(scene.fs("target"));
        run(&NetnewsConfig { removal, ..config(2, 1, Keep::Keep) }, &storage, &feed);
        let list = std::fs::read_to_string(scene.path("target/crumb-netnews-s/lib/expire.list")).unwrap();
        assert_eq!(list, expected);
    }
}

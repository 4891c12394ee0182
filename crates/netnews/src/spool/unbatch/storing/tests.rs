//! What a stored article looks like, and what happens where names collide or links are refused.

use std::sync::Arc;

use files::{FileSystem, LocalFs};
use tempfile::TempDir;

use super::*;

struct Bench {
    folder: TempDir,
    places: Places,
    groups: Groups,
    storer: Storer,
}

impl Bench {
    fn new(link: LinkKind) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| -> Arc<dyn FileSystem> {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).unwrap();
            Arc::new(LocalFs::open(path).unwrap())
        };
        let places = Places::new(open("main"), vec![("far.*".parse().unwrap(), open("far"))]);
        Self {
            places,
            folder,
            groups: Groups::default(),
            storer: Storer::new("our.host", link, SyncWhen::None),
        }
    }

    fn store(&mut self, text: &str) -> Vec<(String, u64)> {
        let article = Article::parse(text.as_bytes()).unwrap();
        let mut wanted = Vec::new();
        for name in article.newsgroups() {
            let name = name.as_bytes();
            let id = self.groups.find(name).unwrap_or_else(|| self.groups.add(name, &self.places));
            if self.storer.prepare(&self.places, self.groups.get_mut(id)).unwrap() {
                wanted.push(id);
            }
        }
        let names = self.storer.store(&article, &self.places, &mut self.groups, &wanted).unwrap().to_vec();
        let group_and_number = |name: &Name| {
            (String::from_utf8(self.groups.get(name.group).name.to_vec()).unwrap(), name.number)
        };
        names.iter().map(group_and_number).collect()
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(path)).unwrap()
    }
}

#[test]
fn path_gets_our_host_xref_is_ours_and_nothing_else_changes() {
    let mut bench = Bench::new(LinkKind::Hard);
    let text = "Xref: elsewhere a.b:99\nNewsgroups: a.b, c\nPath: x!y!z\nMessage-ID: <1@h>\nSubject: s\n\nbody\n\nmore";
    bench.store(text);
    let expected = "Newsgroups: a.b, c\nPath: our.host!x!y!z\nMessage-ID: <1@h>\nSubject: s\n\
                    Xref: our.host a.b:1 c:1\n\nbody\n\nmore";
    assert_eq!((bench.read("main/a/b/1").as_str(), bench.read("main/c/1").as_str()), (expected, expected));
}

#[test]
fn a_folded_xref_behind_path_goes_with_all_its_lines_and_a_missing_path_is_made() {
    let mut bench = Bench::new(LinkKind::Hard);
    bench.store("Path: p\nXref: e a:1\n b:2\nNewsgroups: a\nMessage-ID: <1@h>\n\n");
    assert_eq!(
        bench.read("main/a/1"),
        "Path: our.host!p\nNewsgroups: a\nMessage-ID: <1@h>\nXref: our.host a:1\n\n"
    );
    bench.store("Newsgroups: a\nMessage-ID: <2@h>\n\nx");
    let expected = "Path: our.host!not-for-mail\nNewsgroups: a\nMessage-ID: <2@h>\nXref: our.host a:2\n\nx";
    assert_eq!(bench.read("main/a/2"), expected);
}

#[test]
fn a_cross_post_to_another_place_is_a_symbolic_link_that_leads_to_the_file() {
    let mut bench = Bench::new(LinkKind::Hard);
    bench.store("Path: p\nNewsgroups: a.b,far.c,d\nMessage-ID: <1@h>\n\nx");
    assert!(std::fs::symlink_metadata(bench.folder.path().join("far/far/c/1")).unwrap().is_symlink());
    assert_eq!(bench.read("far/far/c/1"), bench.read("main/a/b/1"));
    let counts = bench.storer.counts();
    assert_eq!((counts.files, counts.hard_links, counts.symlinks, counts.links_refused), (1, 1, 1, 0));
}

#[test]
fn symbolic_links_on_request_lead_to_the_file_from_any_depth() {
    let mut bench = Bench::new(LinkKind::Symlink);
    bench.store("Path: p\nNewsgroups: a.b,d,e.f.g\nMessage-ID: <1@h>\n\nx");
    for link in ["main/d/1", "main/e/f/g/1"] {
        assert!(std::fs::symlink_metadata(bench.folder.path().join(link)).unwrap().is_symlink());
        assert_eq!(bench.read(link), bench.read("main/a/b/1"));
    }
}

#[test]
fn a_number_that_is_a_groups_directory_is_left_out_for_files_and_for_links() {
    let mut bench = Bench::new(LinkKind::Hard);
    bench.store("Path: p\nNewsgroups: alt.1,alt.2\nMessage-ID: <1@h>\n\nx");
    let names = bench.store("Path: p\nNewsgroups: alt\nMessage-ID: <2@h>\n\nx");
    assert_eq!(names, [("alt".to_owned(), 3)]);
    bench.store("Path: p\nNewsgroups: b.1\nMessage-ID: <3@h>\n\nx");
    let names = bench.store("Path: p\nNewsgroups: c,b\nMessage-ID: <4@h>\n\nx");
    assert_eq!(names, [("c".to_owned(), 2), ("b".to_owned(), 2)]);
    assert!(!bench.folder.path().join("main/c/1").exists());
    assert!(bench.read("main/b/2").contains("Xref: our.host c:2 b:2\n"));
    assert_eq!(bench.storer.counts().numbers_taken, 3);
}

#[test]
fn a_group_whose_directory_is_an_article_is_not_used() {
    let mut bench = Bench::new(LinkKind::Hard);
    bench.store("Path: p\nNewsgroups: alt\nMessage-ID: <1@h>\n\nx");
    let names = bench.store("Path: p\nNewsgroups: alt.1,alt.1.deep,c\nMessage-ID: <2@h>\n\nx");
    assert_eq!(names, [("c".to_owned(), 1)]);
}

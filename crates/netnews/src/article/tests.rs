use proptest::prelude::*;

use super::*;

const WHOLE: &[u8] = b"Path: a!b!poster\nnewsgroups: x.y, x.z,,x.y,../etc,b/c\nMESSAGE-ID:\n <1@h>\n\
Date: Tue, 06 Apr 1993 12:34:56 -0500\nSupersedes: <0@h>\nControl: cancel <9@h>\nXref: h x.y:1\n\tx.z:2\n\nbody\n\nmore";

#[test]
fn an_article_is_read_whole_whatever_the_case_and_the_folding() {
    let article = Article::parse(WHOLE).expect("an article");
    assert_eq!(article.message_id(), b"<1@h>");
    assert_eq!(article.newsgroups().collect::<Vec<_>>(), ["x.y", "x.z"]);
    assert_eq!(article.newsgroups_malformed(), 2);
    assert_eq!(article.control_cancel(), Some(&b"<9@h>"[..]));
    assert_eq!(article.supersedes(), Some(&b"<0@h>"[..]));
    assert_eq!(article.date(), Some(734_117_696));
    assert_eq!(article.body(), b"body\n\nmore");
    assert_eq!(article.fields().count(), 7);
}

#[test]
fn path_and_xref_are_rewritten_by_slicing() {
    let article = Article::parse(WHOLE).expect("an article");
    let (path, xref) = (article.path().expect("Path"), article.xref().expect("Xref"));
    assert_eq!(&WHOLE[xref.lines.clone()], b"Xref: h x.y:1\n\tx.z:2\n");
    assert_eq!(xref.lines.end, article.head_end());
    let rewritten = [
        &WHOLE[..path.value_at.start],
        b"our!",
        &WHOLE[path.value_at.start..xref.lines.start],
        b"Xref: our x.y:7\n",
        &WHOLE[article.head_end()..],
    ]
    .concat();
    let again = Article::parse(&rewritten).expect("an article");
    assert_eq!(again.path().expect("Path").value, b"our!a!b!poster");
    assert_eq!(again.xref().expect("Xref").value, b"our x.y:7");
    assert_eq!(again.body(), article.body());
}

#[test]
fn what_is_missing_is_named() {
    let broken = |text: &str| Article::parse(text.as_bytes()).expect_err(text);
    assert_eq!(broken(" \n\n"), Broken::Empty);
    assert_eq!(broken("Newsgroups: a\n\n"), Broken::NoMessageId);
    assert_eq!(broken("Message-ID: 1@h\nNewsgroups: a\n\n"), Broken::BadMessageId);
    assert_eq!(broken("Message-ID: <1 2@h>\nNewsgroups: a\n\n"), Broken::BadMessageId);
    assert_eq!(broken("Message-ID: <1@h>\n\n"), Broken::NoNewsgroups);
    assert_eq!(broken("Message-ID: <1@h>\nNewsgroups: ,\n\n"), Broken::NoNewsgroups);
    assert_eq!(broken("Message-ID: <1@h>\nNewsgroups: ..,a/b\n\n"), Broken::BadNewsgroups);
    assert_eq!(broken("Message-ID: <1@h>\nNewsgroups: a\n"), Broken::NoBody);
    assert_eq!(broken("Message-ID: <1@h>\nwhat is this\n\n"), Broken::BadHeader);
    let many = format!("Message-ID: <1@h>\nNewsgroups: {}\n\n", "a,".repeat(GROUPS_MAX + 1));
    assert_eq!(broken(&many), Broken::TooManyGroups);
}

#[test]
fn dates_of_all_three_standards_and_of_ctime_are_the_same_moment() {
    for date in [
        "Tue, 06 Apr 1993 12:34:56 -0500",
        "6 Apr 93 17:34:56 GMT",
        "Tuesday, 06-Apr-93 12:34:56 EST",
        "Tue Apr  6 13:34:56 EDT 1993",
        "Tue, 6 Apr 1993 17:34:56 GMT (really)",
    ] {
        assert_eq!(date::unix_time(date.as_bytes()), Some(734_117_696), "{date}");
    }
    for date in ["", "yesterday", "6 Apr 1993", "99:99 6 Apr 1993", "32 Foo 1993 12:00", "6 Apr 99999 1:2:3"]
    {
        assert_eq!(date::unix_time(date.as_bytes()), None, "{date}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Article::parse(&bytes);
        let _ = date::unix_time(&bytes);
    }

    #[test]
    fn no_mangled_header_makes_it_panic_and_offsets_stay_in_order(
        cuts in proptest::collection::vec((0..WHOLE.len(), any::<u8>()), 0..8), end in 0..=WHOLE.len(),
    ) {
        let mut bytes = WHOLE[..end].to_vec();
        for (at, byte) in cuts {
            if let Some(place) = bytes.get_mut(at) { *place = byte; }
        }
        if let Ok(article) = Article::parse(&bytes) {
            prop_assert!(article.head_end() < article.body_start());
            prop_assert!(article.newsgroups().count() >= 1);
            let _ = (article.date(), article.control_cancel(), article.supersedes());
            for field in article.fields() {
                prop_assert!(field.lines.start < field.value_at.start && field.value_at.end <= field.lines.end);
            }
            for group in article.newsgroups() {
                prop_assert!(group.split('.').all(|part| !part.is_empty() && !part.contains('/')));
            }
        }
    }

    #[test]
    fn no_words_of_dates_make_it_panic(words in proptest::collection::vec(
        prop_oneof!["[0-9]{0,5}", "[A-Za-z]{1,4}", "[+-][0-9]{0,5}", "[0-9:]{1,9}", "[0-9A-Za-z-]{1,10}"], 0..20)) {
        let _ = date::unix_time(words.join(" ").as_bytes());
    }
}

//! What a page embeds, fetched ahead.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::{AdmissionFilter, Gate, Origin, Proxy, Step, reply};

const ON: &str = "prefetch.enabled = true\n";

fn page(seen: &AdmissionFilter, html: &str) -> Option<Vec<Step>> {
    let fields = "Content-Type: text/html; charset=utf-8\r\nCache-Control: public, max-age=60\r\n";
    (seen.target == "/page").then(|| reply(fields, html))
}

/// Serves a page, and everything else as what it is asked for.
fn origin(html: &'static str) -> Origin {
    Origin::new(move |seen, _| {
        page(seen, html).unwrap_or_else(|| reply("Cache-Control: max-age=60\r\n", &seen.target))
    })
}

fn ahead(proxy: &Proxy) -> u64 {
    proxy.count(|counters| counters.prefetched.get())
}

#[test]
fn what_a_page_embeds_is_there_before_it_is_asked_for() {
    let origin = origin(
        "<link rel=stylesheet href=s.css><img src=/a.png><img src=http://other.example/b.png><a href=/no>no</a>",
    );
    let proxy = Proxy::with(origin.address, ON);
    let fields = "Cookie: a=b\r\nAuthorization: Basic eDp5\r\nAccept-Encoding: gzip\r\nUser-Agent: test\r\n";
    assert_eq!(proxy.ask("GET", "/page", fields).status, 200);
    proxy.until("both are there", |proxy| ahead(proxy) == 2);
    proxy.settled();
    let mut seen = origin.seen();
    seen.sort_by(|one, other| one.target.cmp(&other.target));
    let targets: Vec<_> = seen.iter().map(|seen| seen.target.as_str()).collect();
    assert_eq!(targets, ["/a.png", "/page", "/s.css"]);
    let image = &seen[0];
    assert_eq!([image.field("cookie"), image.field("authorization")], [None; 2], "{image:?}");
    assert_eq!(image.field("sec-purpose"), Some("prefetch"));
    assert_eq!([image.field("accept-encoding"), image.field("user-agent")], [Some("gzip"), Some("test")]);
    assert_eq!(image.field("host"), Some("site"));
    let used = |proxy: &Proxy| proxy.count(|counters| counters.prefetch_used.get());
    assert_eq!(used(&proxy), 0);
    for _ in 0..2 {
        let got = proxy.get("/a.png");
        assert_eq!((got.is_hit(), got.text().as_str()), (true, "/a.png"));
    }
    assert_eq!((used(&proxy), origin.seen().len()), (1, 3), "used once");
    assert_eq!(proxy.count(|counters| counters.prefetched_bytes.get()), 12);
    // The page again, from the store: nothing more.
    assert!(proxy.get("/page").is_hit());
    assert!(proxy.get("/s.css").is_hit());
    assert_eq!((used(&proxy), origin.seen().len()), (2, 3));
}

#[test]
fn a_page_that_comes_compressed_is_looked_through_too() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, b"<img src=/a.png srcset='/b.png 1x, /c.png 2x'>").unwrap();
    let page = gzip.finish().unwrap();
    let origin = Origin::new(move |seen, _| match seen.target.as_str() {
        "/page" => {
            reply("Content-Type: text/html\r\nContent-Encoding: gzip\r\nCache-Control: max-age=60\r\n", &page)
        }
        target => reply("Cache-Control: max-age=60\r\n", target),
    });
    let proxy = Proxy::with(origin.address, ON);
    assert_eq!(proxy.ask("GET", "/page", "Accept-Encoding: gzip\r\n").status, 200);
    proxy.until("it is there", |proxy| ahead(proxy) == 1);
    assert!(proxy.ask("GET", "/b.png", "Accept-Encoding: gzip\r\n").is_hit());
    assert_eq!(origin.seen().len(), 2);
}

#[test]
fn nothing_is_fetched_unless_told_nor_for_pages_that_are_not_stored_or_cannot_be_read() {
    let html = "<img src=/a.png>";
    let rows = [
        ("", "Content-Type: text/html\r\nCache-Control: max-age=60\r\n"),
        (ON, "Content-Type: text/html\r\nCache-Control: no-store\r\n"),
        (ON, "Content-Type: text/html\r\nCache-Control: max-age=60\r\nContent-Encoding: gzip\r\n"),
        (ON, "Content-Type: text/html\r\nCache-Control: max-age=60\r\nContent-Encoding: br\r\n"),
        (ON, "Content-Type: text/plain\r\nCache-Control: max-age=60\r\n"),
        (
            "prefetch.enabled = true\nprefetch.page_max_kib = 0\n",
            "Content-Type: text/html\r\nCache-Control: max-age=60\r\n",
        ),
    ];
    for (config, fields) in rows {
        let (fields, fields_told) = (fields.to_owned(), fields);
        let origin = Origin::new(move |_, _| reply(&fields, html));
        let proxy = Proxy::with(origin.address, config);
        proxy.get("/page");
        proxy.settled();
        // Time for it to go wrong.
        (0..50).for_each(|number| drop(proxy.get(&format!("/other/{number}"))));
        assert!(origin.seen().iter().all(|seen| seen.target != "/a.png"), "{config} {fields_told}");
        assert_eq!(ahead(&proxy), 0);
    }
}

#[test]
fn hosts_that_are_not_served_are_not_served_ahead_either() {
    let origin = origin("<img src='http://denied.example/a.png'><img src=/b.png>");
    let config =
        "prefetch.enabled = true\nprefetch.hosts = 'all'\naccess.hosts_denied = ['denied.example']\n";
    let proxy = Proxy::with(origin.address, config);
    assert_eq!(proxy.get_url(&format!("http://{}/page", origin.address), "").status, 200);
    proxy.until("the other is there", |proxy| ahead(proxy) == 1);
    proxy.settled();
    assert_eq!(proxy.count(|counters| counters.origin_requests.get()), 2);
    assert_eq!(proxy.count(|counters| counters.prefetch_failed.get()), 0);
    assert!(proxy.get_url(&format!("http://{}/b.png", origin.address), "").is_hit());
}

#[test]
fn it_is_bounded_by_page_and_at_a_time_and_goes_no_further_than_one_page() {
    let gate = Arc::new(Gate::default());
    let (held, at_once, most) =
        (Arc::clone(&gate), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, peak) = (Arc::clone(&at_once), Arc::clone(&most));
    let html: String = (0..40).map(|number| format!("<img src=/{number}>")).collect();
    let origin = Origin::new(move |seen, _| {
        if let Some(page) = page(seen, &html) {
            return page;
        }
        peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        held.wait();
        now.fetch_sub(1, Ordering::SeqCst);
        // Each is a page in turn.
        reply("Content-Type: text/html\r\nCache-Control: max-age=60\r\n", "<img src=/further>")
    });
    let config = "prefetch.enabled = true\nprefetch.page_objects_max = 7\nprefetch.in_flight_max = 3\n";
    let proxy = Proxy::with(origin.address, config);
    proxy.get("/page");
    proxy.until("three are asked for", |_| at_once.load(Ordering::SeqCst) == 3);
    gate.open();
    let given_up = |proxy: &Proxy| proxy.count(|counters| counters.prefetch_failed.get());
    proxy.until("all have ended", |proxy| ahead(proxy) + given_up(proxy) == 7);
    assert_eq!(given_up(&proxy), 0, "{:?}", origin.seen());
    proxy.settled();
    assert_eq!(most.load(Ordering::SeqCst), 3, "no more at a time");
    drop(proxy.stop());
    assert_eq!(origin.seen().len(), 8, "the page and seven of its forty");
}

#[test]
fn what_is_too_long_or_not_to_be_stored_is_given_up_and_counted() {
    let origin = Origin::new(|seen, _| {
        page(seen, "<img src=/long><img src=/private><img src=/gone>").unwrap_or_else(|| {
            match seen.target.as_str() {
                "/long" => reply("Cache-Control: max-age=60\r\n", vec![b'x'; 3 << 20]),
                "/private" => reply("Cache-Control: private\r\n", "x"),
                _ => vec![Step::Close],
            }
        })
    });
    let proxy = Proxy::with(
        origin.address,
        "prefetch.enabled = true\nprefetch.object_max_kib = 64\ncache.finish_kib = 0\n",
    );
    proxy.get("/page");
    proxy.until("all are given up", |proxy| proxy.count(|counters| counters.prefetch_failed.get()) == 3);
    proxy.settled();
    assert_eq!(ahead(&proxy), 0);
    assert!(!proxy.get("/long").is_hit());
    assert_eq!(proxy.count(|counters| counters.prefetch_used.get()), 0);
}

#[test]
fn a_client_that_asks_for_what_is_on_its_way_shares_it_and_that_is_a_use() {
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let origin = Origin::new(move |seen, _| {
        page(seen, "<img src=/a>").unwrap_or_else(|| {
            let mut steps = reply("Cache-Control: max-age=60\r\n", "picture");
            steps.insert(0, Step::Wait(Arc::clone(&held)));
            steps
        })
    });
    let proxy = Proxy::with(origin.address, ON);
    proxy.get("/page");
    proxy.until("it is asked for", |_| origin.seen().len() == 2);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| proxy.get("/a"));
        proxy.until("the client has come", |proxy| proxy.server().shared().clients.count() > 0);
        gate.open();
        assert_eq!(client.join().unwrap().text(), "picture");
    });
    assert_eq!(origin.seen().len(), 2, "asked for once");
    proxy.until("it is counted", |proxy| proxy.count(|counters| counters.prefetch_used.get()) == 1);
}

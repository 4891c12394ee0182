use toml::Table;

use super::*;

fn flags(text: &str) -> Table {
    text.parse().expect(text)
}

const ENOUGH: &str = "forward.listen = ['127.0.0.1:0']\ncache.directories = ['/cache']";

#[test]
fn the_file_of_defaults_is_the_one_that_operators_know() {
    assert_eq!(default_toml(), include_str!("tests/default.toml"));
}

#[test]
fn a_reload_tells_the_keys_that_need_a_new_start_and_no_others() {
    let config = |text: &str| read(text, flags(ENOUGH)).expect("enough");
    let old = config("[limits]\nidle_s = 7\n[cache]\nsize_mib = 64");
    let new = config("[limits]\nidle_s = 8\n[cache]\nsize_mib = 65\n[proxy]\nloops = 3");
    assert_eq!(new.needing_restart(&old), ["proxy.loops", "cache.size_mib"]);
    assert!(new.needing_restart(&new).is_empty());
}

/// Symptom: a number beyond 2^63 gave `integer too large`, in the words of the parser and without the key.
#[test]
fn a_number_beyond_what_toml_has_is_told_with_its_key_and_what_is_allowed() {
    let file = "[limits]\nidle_s = 99999999999999999999\n[cache]\nsize_mib = 1\nmemory_mib = -99999999999999999999\n";
    let problems = read(file, flags(ENOUGH)).map(drop).expect_err("too large").problems;
    let reported =
        problems.iter().map(|problem| format!("{} {}", problem.key, problem.what)).collect::<Vec<_>>();
    let allowed = "and should be from -9223372036854775808 to 9223372036854775807";
    assert_eq!(
        reported,
        [
            format!("cache.memory_mib is -99999999999999999999, {allowed}"),
            format!("limits.idle_s is 99999999999999999999, {allowed}"),
        ]
    );
    // What is no TOML is reported by the parser.
    let error = read("[limits]\nidle_s = = 3", flags(ENOUGH)).map(drop).expect_err("no TOML");
    assert_eq!(error.problems[0].key, "");
}

#[test]
fn a_directory_and_an_address_are_enough() {
    let config = read("", flags(ENOUGH)).expect("enough");
    assert_eq!(config.forward.listen.len(), 1);
    assert_eq!(
        config.policy,
        http_cache_rules::Policy::default(),
        "the file's defaults are those of the rules"
    );
}

#[test]
fn every_key_of_the_file_is_told_with_a_comment_and_what_is_printed_is_read_again_as_the_same() {
    let mut commented = false;
    for line in default_toml().lines().filter(|line| !line.starts_with('[')) {
        if line.is_empty() {
            commented = false;
        } else if line.starts_with('#') {
            commented = true;
        } else {
            assert!(commented, "{line} stands without a comment above");
        }
    }
    let site = "[[site]]\nhosts = ['a']\norigins = ['http://b:1']\n[[sibling]]\naddress = 'c:1'\nicp_port = 2\n\
                [[parent]]\naddress = 'd:1'\n[limits]\nidle_s = 7";
    let config = read(site, flags(ENOUGH)).expect("enough");
    let printed = print(&config);
    assert!(printed.contains("idle_s = 7"), "{printed}");
    let again = read(&printed, Table::new()).expect("what is printed is read");
    assert_eq!(again.table, config.table);
}

#[test]
fn all_that_is_wrong_is_told_at_once_with_its_key() {
    let rows = [
        ("[proxy]\nnames = 'x'", "proxy.names is not a known key"),
        ("[proxy]\nloops = 'x'", "proxy.loops is of type string"),
        ("nothing = 1", "nothing is not a known key"),
        ("[rules]\nset_cookie = 'maybe'", "rules.set_cookie is `maybe`"),
        ("[access]\nclients = ['10.0.0.0/99']", "access.clients has `10.0.0.0/99`"),
        ("[forward]\nlisten = ['0.0.0.0:3128']", "access.clients is empty while 0.0.0.0:3128"),
        ("[reverse]\nlisten = ['127.0.0.1:80']", "site is missing"),
        (
            "[reverse]\nlisten_tls = ['127.0.0.1:80']\n[[site]]\nhosts=['a']\norigins=['http://b']",
            "reverse.certificate",
        ),
        ("[[site]]\nhosts = ['a']\norigins = ['ftp://b']", "site.origins has `ftp://b`"),
        ("[[site]]\nhost = 'a'", "missing field `hosts`"),
        ("[admin]\nlisten = '0.0.0.0:1'", "admin.password is empty"),
        ("[limits]\nidle_s = 0", "limits.idle_s is 0"),
        ("[icp]\nlisten = 'x'", "icp.listen is `x`"),
        ("[icp]\nlisten = '0.0.0.0:3130'", "icp.clients and access.clients are empty while 0.0.0.0:3130"),
        ("[icp]\nclients = ['a']", "icp.clients has `a`"),
        ("[icp]\ntimeout_ms = 0", "icp.timeout_ms is 0"),
        ("[[sibling]]\naddress = '10.0.0.8'\nicp_port = 3130", "sibling.address is `10.0.0.8`"),
        ("[[sibling]]\naddress = '10.0.0.8:3128'\nicp_port = 0", "sibling.icp_port is 0"),
        ("[[sibling]]\naddress = '10.0.0.8:3128'", "missing field `icp_port`"),
        ("[[parent]]\naddress = 'a:1'\nicp_ports = 1", "unknown field `icp_ports`"),
        (
            "[access]\ninternal = 'maybe'",
            "access.internal is `maybe`, and should be one of auto, deny, allow",
        ),
        ("[access]\ninternal_allowed = ['a']", "access.internal_allowed has `a`"),
        ("[access]\ndestinations_denied = ['10.0.0.0/33']", "access.destinations_denied has `10.0.0.0/33`"),
        ("[admin]\nhosts = ['a:1']", "admin.hosts has `a:1`"),
        ("[reverse]\nx_forwarded_for = 'off'", "reverse.x_forwarded_for is `off`"),
        ("[prefetch]\nhosts = 'some'", "prefetch.hosts is `some`"),
        ("[prefetch]\nin_flight_max = 0", "prefetch.in_flight_max is 0"),
        ("[prefetch]\npage_max_kib = 257", "prefetch.page_max_kib is 257, and should be at most 256"),
        (
            "[cache]\nsize_mib = 8796093022208",
            "cache.size_mib is 8796093022208, and should be at most 8796093022207",
        ),
        ("[cache]\nmemory_mib = 17592186044416", "cache.memory_mib is 17592186044416"),
        ("[cache]\nbehind_max_kib = 18014398509481984", "cache.behind_max_kib is 18014398509481984"),
        ("[cache]\nobject_max_kib = 9223372036854775807", "cache.object_max_kib is 9223372036854775807"),
        ("[limits]\nbody_mib = 9223372036854775807", "limits.body_mib is 9223372036854775807"),
        ("[limits]\nhead_kib = 9223372036854775807", "limits.head_kib is 9223372036854775807"),
        ("[limits]\nidle_s = 9223372036854775807", "limits.idle_s is 9223372036854775807"),
        ("[upstream]\ndns_s = 4294967296", "upstream.dns_s is 4294967296, and should be at most 4294967295"),
        ("[proxy]\nloops = 1000000", "proxy.loops is 1000000, and should be at most 4096"),
        ("[log]\nkeep = 4294967295", "log.keep is 4294967295"),
        (
            "[[site]]\nhosts=['a']\norigins=['http://b']\nhealth_s = 9223372036854775807",
            "site.health_s is 9223372036854775807",
        ),
        ("[limits]\nidle_s = -1", "limits.idle_s"),
        ("[log]\nkeep = 4294967296", "log.keep"),
        ("[rules]\nheuristic_percent = 256", "rules.heuristic_percent"),
        ("[forward]\nconnect_ports = [65536]", "forward.connect_ports"),
        ("[log]\nfile = '-'\nrotate_mib = 1", "log.rotate_mib is 1, but log.file is standard output"),
    ];
    for (text, expected) in rows {
        let with_listen = if text.contains("[forward]") { "cache.directories = ['/c']" } else { ENOUGH };
        let error = read(text, flags(with_listen)).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let both = read("[proxy]\nname = 'a b'\n[limits]\nhead_kib = 1", Table::new()).expect_err("wrong");
    assert_eq!(both.problems.len(), 4, "{both}");
}

#[test]
fn what_may_wait_for_the_disk_is_shared_between_writers_and_store_and_not_given_to_each() {
    let config = read("[cache]\nbehind_max_kib = 1001", flags(ENOUGH)).expect("enough");
    let parts = [config.writers_behind_bytes(), config.store_behind_bytes()];
    assert_eq!(parts.iter().sum::<u64>(), 1001 << 10);
    assert!(parts.iter().all(|part| *part >= 500 << 10), "{parts:?}");
}

#[test]
fn caches_that_may_ask_by_icp_are_those_listed_else_those_whose_clients_are_served() {
    let may = |text: &str, address: &str| {
        let config = read(text, flags(ENOUGH)).expect("right");
        config.may_ask_by_icp(address.parse().expect("an address"))
    };
    assert!(may("", "127.0.0.1") && may("", "::1") && !may("", "10.0.0.1"));
    let served = "[access]\nclients = ['10.0.0.0/8']";
    assert!(may(served, "10.0.0.1") && !may(served, "127.0.0.1"));
    let listed = "[access]\nclients = ['10.0.0.0/8']\n[icp]\nclients = ['192.168.0.7']";
    assert!(may(listed, "192.168.0.7") && !may(listed, "10.0.0.1"));
}

#[test]
fn one_object_may_take_a_sixteenth_of_a_directory_s_space_unless_said_otherwise() {
    let bytes = |text: &str| read(text, flags(ENOUGH)).expect("enough").cache.object_max_bytes;
    assert_eq!(bytes("[cache]\nsize_mib = 160"), 10 << 20);
    assert_eq!(bytes("[cache]\nsize_mib = 160\nobject_max_one_in = 4"), 40 << 20);
    assert_eq!(bytes("[cache]\nsize_mib = 160\nobject_max_one_in = 1\nobject_max_kib = 64"), 64 << 10);
    assert!(read("[cache]\nobject_max_one_in = 0", flags(ENOUGH)).is_err());
}

#[test]
fn internal_addresses_are_denied_where_others_than_this_machine_may_ask_unless_told() {
    let denied = |listen: &str, internal: &str| {
        let text = format!(
            "forward.listen = [{listen}]\nreverse.listen = ['0.0.0.0:80']\naccess.clients = ['::/0']\n\
             site = [{{ hosts = ['*'], origins = ['http://10.0.0.1'] }}]\n{internal}\n\
             cache.directories = ['/cache']"
        );
        let config = read("", flags(&text)).expect("right");
        config.destinations.denies([10, 0, 0, 1].into()).is_some()
    };
    for (listen, others) in [
        ("", false),
        ("'127.0.0.1:1'", false),
        ("'[::1]:1', '127.0.0.2:1', '[::ffff:127.0.0.1]:1'", false),
        ("'0.0.0.0:1'", true),
        ("'[::]:1'", true),
        ("'127.0.0.1:1', '192.168.0.7:1'", true),
    ] {
        assert_eq!(denied(listen, ""), others, "{listen}");
        assert!(denied(listen, "access.internal = 'deny'"), "{listen}");
        assert!(!denied(listen, "access.internal = 'allow'"), "{listen}");
        assert!(!denied(listen, "access.internal_allowed = ['10.0.0.0/24']"), "{listen}");
        assert!(denied(listen, "access.destinations_denied = ['10.0.0.1']"), "{listen}");
        assert!(denied(listen, "access.hosts_denied = ['10.0.0.1']"), "{listen}");
    }
    // What was listened at stays until the next start, and so does what follows from it.
    let serving = read(
        "forward.listen = ['0.0.0.0:1']\naccess.clients = ['::/0']",
        flags("cache.directories = ['/c']"),
    );
    let mut reloaded = read("", flags(ENOUGH)).expect("enough");
    reloaded.listen_as(&serving.expect("right"));
    assert!(reloaded.destinations.denies([10, 0, 0, 1].into()).is_some());
}

#[test]
fn former_keys_and_words_are_read_as_those_of_today_and_a_key_under_both_names_is_refused() {
    let former = read("[cache]\nclerks = 7\n[rules]\nset_cookie = 'told'", flags(ENOUGH)).expect("enough");
    assert_eq!(former.cache.writers, 7);
    assert_eq!(former.policy.set_cookie, http_cache_rules::policy::SetCookie::WhenExplicit);
    let printed = print(&former);
    assert!(printed.contains("writers = 7") && !printed.contains("clerks"), "{printed}");
    let both = read("[cache]\nclerks = 7\nwriters = 8", flags(ENOUGH)).expect_err("which one?");
    assert!(both.to_string().contains("cache.writers is set twice"), "{both}");
}

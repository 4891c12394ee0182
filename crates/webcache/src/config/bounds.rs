//! Between what numbers a configuration's values lie: less would not work, more would wrap or never end.

use super::problem::Problems;
use super::raw::Raw;

/// Tells all that lie outside.
pub(super) fn check(raw: &Raw, wrong: &mut Problems) {
    let Raw { proxy, cache, collapse, prefetch, limits, upstream, icp, log, .. } = raw;
    wrong.at_least("cache.size_mib", cache.size_mib, 8);
    wrong.at_least("cache.object_mean_bytes", cache.object_mean_bytes.into(), 64);
    wrong.at_least("cache.object_max_one_in", cache.object_max_one_in, 1);
    wrong.at_least("cache.fill_window_kib", cache.fill_window_kib, 64);
    wrong.at_least("cache.clerks", cache.clerks as u64, 1);
    wrong.at_least("cache.verify_one_in", cache.verify_one_in.into(), 1);
    wrong.at_least("prefetch.page_objects_max", prefetch.page_objects_max as u64, 1);
    wrong.at_least("prefetch.in_flight_max", prefetch.in_flight_max as u64, 1);
    if prefetch.page_max_kib > PAGE_KIB_MAX {
        let what = format!(
            "is {}, and should be at most {PAGE_KIB_MAX}: longer replies are not kept in memory until their end",
            prefetch.page_max_kib
        );
        wrong.add("prefetch.page_max_kib", what);
    }
    wrong.at_least("limits.head_kib", limits.head_kib as u64, 8);
    wrong.at_least("limits.tunnel_idle_s", limits.tunnel_idle_s, 1);
    for (key, seconds) in [
        ("limits.head_s", limits.head_s),
        ("limits.idle_s", limits.idle_s),
        ("limits.stall_s", limits.stall_s),
        ("icp.timeout_ms", icp.timeout_ms),
        ("upstream.connect_ms", upstream.connect_ms),
        ("upstream.reply_s", upstream.reply_s),
    ] {
        wrong.at_least(key, seconds, 1);
    }
    let in_mib = [
        ("cache.size_mib", cache.size_mib),
        ("cache.memory_mib", cache.memory_mib),
        ("limits.body_mib", limits.body_mib),
        ("log.rotate_mib", log.rotate_mib),
    ];
    each_at_most(wrong, &in_mib, BYTES_MAX >> 20);
    let in_kib = [
        ("cache.object_max_kib", cache.object_max_kib),
        ("cache.fill_window_kib", cache.fill_window_kib),
        ("cache.behind_max_kib", cache.behind_max_kib),
        ("cache.finish_kib", cache.finish_kib),
        ("prefetch.object_max_kib", prefetch.object_max_kib),
    ];
    each_at_most(wrong, &in_kib, BYTES_MAX >> 10);
    let times = [
        ("proxy.drain_s", proxy.drain_s),
        ("cache.rebuild_wait_ms", cache.rebuild_wait_ms),
        ("collapse.wait_ms", collapse.wait_ms),
        ("collapse.pass_s", collapse.pass_s),
        ("limits.head_s", limits.head_s),
        ("limits.idle_s", limits.idle_s),
        ("limits.stall_s", limits.stall_s),
        ("limits.tunnel_idle_s", limits.tunnel_idle_s),
        ("upstream.connect_ms", upstream.connect_ms),
        ("upstream.reply_s", upstream.reply_s),
        ("upstream.idle_s", upstream.idle_s),
        ("upstream.dns_s", upstream.dns_s),
        ("upstream.down_s", upstream.down_s),
        ("icp.timeout_ms", icp.timeout_ms),
    ];
    each_at_most(wrong, &times, TIME_MAX);
    for site in &raw.site {
        wrong.at_most("site.health_s", site.health_s.unwrap_or(0), TIME_MAX);
    }
    wrong.at_most("proxy.loops", proxy.loops as u64, THREADS_MAX);
    wrong.at_most("cache.clerks", cache.clerks as u64, THREADS_MAX);
    wrong.at_most("limits.head_kib", limits.head_kib as u64, HEAD_KIB_MAX);
    wrong.at_most("upstream.retries", upstream.retries.into(), RETRIES_MAX);
    wrong.at_most("log.keep", log.keep.into(), LOGS_MAX);
}

fn each_at_most(wrong: &mut Problems, given: &[(&str, u64)], most: u64) {
    for (key, given) in given {
        wrong.at_most(key, *given, most);
    }
}

/// No file has more.
const BYTES_MAX: u64 = i64::MAX as u64;
/// Seconds or milliseconds: more is for ever, and the clock must go on so far.
const TIME_MAX: u64 = u32::MAX as u64;
const THREADS_MAX: u64 = 4096;
/// Each connection may have a head of this length on its way.
const HEAD_KIB_MAX: u64 = 64 << 10;
const RETRIES_MAX: u64 = 100;
/// All are renamed when one is put aside.
const LOGS_MAX: u64 = 10_000;

/// What `server::pump` keeps of a reply until its end.
const PAGE_KIB_MAX: u64 = crate::server::KEPT_BYTES_MAX >> 10;

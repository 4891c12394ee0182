//! PolyMix's robots: which object, and how it is asked for.
//!
//! ```text
//! page number n: new (next of all)            with 1 - recurrence
//!                from the working set         else: 10% of these from the hot 1%, the others from all alike
//! its kind by its number; an HTML page is followed by the 1 to 13 images that it embeds, of the same robot
//! ```
//!
//! Always holds: the working set is a window over the page numbers and costs no memory; what recurs was asked for
//! before by this generator; equal seeds and shares give equal requests.
//! Not here: when (see `phases`), objects' sizes and changes (see `object`).
//! Source: Web Polygraph's PolyMix-3 and PolyMix-4; where they leave room, `docs/design/webload.md` says what is ours.

use std::collections::VecDeque;
use std::time::Duration;

use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::object::{Kind, Object, mix};
use super::phases::{End, Pace, Phase};
use super::{Class, Planned, Share};

/// Which of the workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// PolyMix-3, of the third cache-off.
    Three,
    /// PolyMix-4: other phases, and filling at half the peak.
    Four,
}

/// The workload's parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct PolyMix {
    /// Which generation.
    pub generation: Generation,
    /// Requests a second on the plateaus.
    pub peak_per_sec: f64,
    /// What the cache under test can hold, bytes; twice as much is written to fill it.
    pub cache_bytes: u64,
    /// Rate of filling as a share of the peak.
    pub fill_share: f64,
    /// Bytes of the objects that are requested again; none: `WORKING_SET_SHARE` of the cache.
    pub working_set_bytes: Option<u64>,
    /// How many times shorter than published all times and object lifetimes are.
    pub time_scale: f64,
}

/// Requests a second of one robot.
pub(crate) const ROBOT_PER_SEC: f64 = 0.4;
/// Share of all requests that could hit, as published.
const HIT_OFFERED: f64 = 0.55;
const CACHEABLE: f64 = 0.80;
const RELOAD: f64 = 0.05;
const IMS_CHANGED: f64 = 0.05;
const IMS_UNCHANGED: f64 = 0.10;
const HOT_EVERY: u64 = 100;
const HOT_REQUESTS: f64 = 0.10;
const EMBEDDED_MAX: u64 = 13;
/// Share of requests by kind, as published.
const IMAGES: f64 = 0.65;
const PAGES: f64 = 0.15;
const DOWNLOADS: f64 = 0.005;
const OTHERS: f64 = 0.195;
/// The working set when nothing is said, as a share of the cache. The publications say that it is capped and not
/// where; a set that fits makes the hit ratio a matter of the proxy and not of its size.
const WORKING_SET_SHARE: f64 = 0.5;
/// While the cache is filled, 5 points of hits are offered instead of 55 and a tenth of the special requests.
const FILL_RECURRENCE: f64 = 5.0 / 55.0;
const FILL_SPECIAL: f64 = 0.1;
const FILL_TIMES: f64 = 2.0;
const MINUTE: Duration = Duration::from_secs(60);

impl PolyMix {
    /// As published, for a peak and a cache.
    pub fn new(generation: Generation, peak_per_sec: f64, cache_bytes: u64) -> Self {
        let fill_share = match generation {
            Generation::Three => 0.75,
            Generation::Four => 0.50,
        };
        Self { generation, peak_per_sec, cache_bytes, fill_share, working_set_bytes: None, time_scale: 1.0 }
    }

    /// Robots at the peak.
    pub fn robots(&self) -> u32 {
        (self.peak_per_sec / ROBOT_PER_SEC).ceil().clamp(1.0, 10_000_000.0) as u32
    }

    /// Share of requests that a cache which keeps everything could answer, on the plateaus, 0 to 1.
    pub fn hit_offered(&self) -> f64 {
        HIT_OFFERED
    }

    /// The phases, in order.
    pub fn phases(&self) -> Vec<Phase> {
        let (peak, fill) = (self.peak_per_sec, self.peak_per_sec * self.fill_share);
        let span = |minutes: u32| End::Time((MINUTE * minutes).div_f64(self.time_scale));
        let ramp = |name, from: f64, to: f64, end| {
            Phase::new(name, Pace::Open { from_per_sec: from, to_per_sec: to }, end)
        };
        let filling = |phase: Phase, to: f64| Phase {
            recurrence: (FILL_RECURRENCE, to),
            special: FILL_SPECIAL,
            ..phase
        };
        let fill_bytes = End::NewBytes((self.cache_bytes as f64 * FILL_TIMES) as u64);
        let fill_phase = filling(ramp("fill", fill, fill, fill_bytes), FILL_RECURRENCE);
        match self.generation {
            Generation::Three => {
                let low = 0.1 * peak;
                vec![
                    ramp("warm", low, low, span(3)),
                    filling(ramp("fill-ramp", low, fill, span(30)), FILL_RECURRENCE),
                    fill_phase,
                    filling(ramp("fill-exit", fill, 0.1 * fill, span(30)), 1.0),
                    ramp("up-1", 0.1 * fill, peak, span(30)),
                    ramp("top-1", peak, peak, span(240)).measured(),
                    ramp("down-1", peak, low, span(30)),
                    ramp("idle", low, low, span(30)),
                    ramp("up-2", low, peak, span(30)),
                    ramp("top-2", peak, peak, span(240)).measured(),
                    ramp("down-2", peak, low, span(30)),
                ]
            }
            Generation::Four => {
                let (low, none) = (0.1 * peak, 0.0004 * peak);
                vec![
                    filling(ramp("fill-ramp", none, fill, span(20)), FILL_RECURRENCE),
                    fill_phase,
                    filling(ramp("fill-exit", fill, none, span(20)), 1.0),
                    ramp("up-1", none, peak, span(20)),
                    ramp("top-1", peak, peak, span(240)).measured(),
                    ramp("down-1", peak, low, span(20)),
                    ramp("idle", low, low, span(20)),
                    ramp("up-2", low, peak, span(20)),
                    ramp("top-2", peak, peak, span(240)).measured(),
                    ramp("down-2", peak, none, span(20)),
                ]
            }
        }
    }

    /// How many pages, downloads and so on the working set has, embedded images not counted.
    fn working_set_pages(&self) -> u64 {
        let bytes = self.working_set_bytes.unwrap_or((self.cache_bytes as f64 * WORKING_SET_SHARE) as u64);
        // What may not be cached takes no room.
        let of = |kind: Kind, share: f64| share * kind.mean_bytes() * kind.cacheable_share();
        let bytes_a_request = of(Kind::Image, IMAGES)
            + of(Kind::Html, PAGES)
            + of(Kind::Download, DOWNLOADS)
            + of(Kind::Other, OTHERS);
        let embedded = PAGES * embedded_mean();
        ((bytes as f64 / bytes_a_request * (1.0 - embedded)) as u64).max(HOT_EVERY)
    }
}

/// Mean of Zipf's law up to 13 with exponent 1: 4.09.
fn embedded_mean() -> f64 {
    EMBEDDED_MAX as f64 / (1..=EMBEDDED_MAX).map(|rank| 1.0 / rank as f64).sum::<f64>()
}

/// Draws requests for ever.
pub(crate) struct PolyMixPlanner {
    random: Xoshiro256PlusPlus,
    share: Share,
    robots: u32,
    time_scale: f64,
    working_set: u64,
    /// Pages made so far.
    pages: u64,
    /// Above the page numbers, so that runs of different seeds share no object.
    world: u64,
    /// Images of pages asked for just now, with the robot, and whether the page was asked for before.
    embedded: VecDeque<(Object, u32, bool)>,
}

impl PolyMixPlanner {
    pub fn new(config: &PolyMix, share: Share) -> Self {
        Self {
            random: Xoshiro256PlusPlus::seed_from_u64(mix(share.seed) ^ share.number),
            robots: (config.robots() / share.of as u32).max(1),
            time_scale: config.time_scale,
            working_set: (config.working_set_pages() / share.of).max(HOT_EVERY),
            pages: 0,
            world: (mix(share.seed ^ 0x0077_6f72_6c64) & 0x3f_ffff) << 38,
            embedded: VecDeque::new(),
            share,
        }
    }

    fn chance(&mut self, share: f64) -> bool {
        self.random.random::<f64>() < share
    }

    pub fn next(&mut self, recurrence: f64, special: f64) -> Planned {
        let recurs = HIT_OFFERED / (CACHEABLE * (1.0 - RELOAD)) * recurrence;
        let (object, robot, is_known) = match self.embedded.pop_front() {
            Some(image) => image,
            None => {
                let robot = self.random.random_range(0..self.robots);
                let is_known = self.pages > 0 && self.chance(recurs);
                let page = if is_known { self.known_page() } else { self.new_page() };
                let object = self.page_object(page);
                if object.kind == Kind::Html {
                    for at in 1..=embedded_count(page) {
                        let image = Object::by_law(Kind::Image, self.world | page << 4 | at);
                        self.embedded.push_back((image.ageing_faster(self.time_scale), robot, is_known));
                    }
                }
                (object, robot, is_known)
            }
        };
        let reload = self.chance(RELOAD * special);
        // Only what a robot has seen can it ask about, so these draw from a smaller part of the requests.
        let of_known = if is_known { special / recurs.max(1e-9) } else { 0.0 };
        let draw = self.random.random::<f64>();
        let class = if reload {
            Class::Reload
        } else if draw < IMS_CHANGED * of_known {
            Class::ImsChanged
        } else if draw < (IMS_CHANGED + IMS_UNCHANGED) * of_known {
            Class::ImsUnchanged
        } else {
            Class::Plain
        };
        let could_hit = is_known && object.cacheable && class != Class::Reload;
        Planned { object, class, robot, could_hit, is_new: !is_known, tail: (0, 0), due: Duration::ZERO }
    }

    fn new_page(&mut self) -> u64 {
        self.pages += 1;
        self.number(self.pages - 1)
    }

    fn known_page(&mut self) -> u64 {
        let oldest = self.pages.saturating_sub(self.working_set);
        let span = self.pages - oldest;
        let page = if self.chance(HOT_REQUESTS) {
            let hot_first = oldest.next_multiple_of(HOT_EVERY);
            let hot = (self.pages.saturating_sub(hot_first)).div_ceil(HOT_EVERY);
            if hot == 0 { oldest } else { hot_first + HOT_EVERY * (self.random.next_u64() % hot) }
        } else {
            oldest + self.random.next_u64() % span
        };
        self.number(page)
    }

    /// Generators have pages of their own.
    fn number(&self, page: u64) -> u64 {
        page * self.share.of + self.share.number
    }

    /// What a page is, by its number alone.
    fn page_object(&self, page: u64) -> Object {
        let alone = IMAGES - PAGES * embedded_mean();
        let draw = (mix(page ^ self.world) >> 11) as f64 / (1u64 << 53) as f64
            * (alone + PAGES + DOWNLOADS + OTHERS);
        let kind = if draw < PAGES {
            Kind::Html
        } else if draw < PAGES + DOWNLOADS {
            Kind::Download
        } else if draw < PAGES + DOWNLOADS + OTHERS {
            Kind::Other
        } else {
            Kind::Image
        };
        Object::by_law(kind, self.world | page << 4).ageing_faster(self.time_scale)
    }
}

/// Images that a page embeds: Zipf's law up to 13, by the page's number.
fn embedded_count(page: u64) -> u64 {
    let total: f64 = (1..=EMBEDDED_MAX).map(|rank| 1.0 / rank as f64).sum();
    let mut left = (mix(page ^ 0x0065_6d62_6564) >> 11) as f64 / (1u64 << 53) as f64 * total;
    (1..=EMBEDDED_MAX)
        .find(|&rank| {
            left -= 1.0 / rank as f64;
            left < 0.0
        })
        .unwrap_or(EMBEDDED_MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const SHARE: Share = Share { number: 0, of: 1, seed: 7 };

    fn config() -> PolyMix {
        PolyMix::new(Generation::Three, 300.0, 1 << 30)
    }

    fn asked(config: &PolyMix, share: Share, count: usize) -> Vec<Planned> {
        let mut planner = PolyMixPlanner::new(config, share);
        (0..count).map(|_| planner.next(1.0, 1.0)).collect()
    }

    #[test]
    fn the_mix_is_the_published_one() {
        let all = asked(&config(), SHARE, 400_000);
        let share = |of: &dyn Fn(&Planned) -> bool| {
            100.0 * all.iter().filter(|planned| of(planned)).count() as f64 / all.len() as f64
        };
        let near =
            |value: f64, wanted: f64, by: f64| assert!((value - wanted).abs() < by, "{value}, not {wanted}");
        near(share(&|planned| planned.object.kind == Kind::Image), 65.0, 1.0);
        near(share(&|planned| planned.object.kind == Kind::Html), 15.0, 0.5);
        near(share(&|planned| planned.object.kind == Kind::Download), 0.5, 0.1);
        near(share(&|planned| planned.class == Class::Reload), 5.0, 0.2);
        near(share(&|planned| planned.class == Class::ImsChanged), 5.0, 0.3);
        near(share(&|planned| planned.class == Class::ImsUnchanged), 10.0, 0.5);
        near(share(&|planned| planned.could_hit), 55.0, 1.0);
        let mean = all.iter().map(|planned| planned.object.size_bytes as f64).sum::<f64>() / all.len() as f64;
        near(mean, 10_575.0, 600.0);
    }

    #[test]
    fn what_is_said_to_recur_was_asked_for_before_and_what_is_new_was_not() {
        let mut seen = HashSet::new();
        for planned in asked(&config(), SHARE, 50_000) {
            let fresh = seen.insert((planned.object.kind, planned.object.number));
            assert_eq!(fresh, planned.is_new, "{planned:?}");
        }
    }

    #[test]
    fn equal_seeds_ask_for_the_same_and_other_seeds_and_generators_for_nothing_in_common() {
        let of = |share| asked(&config(), share, 5_000);
        assert_eq!(of(SHARE), of(SHARE));
        let names =
            |share| of(share).iter().map(|p| (p.object.kind, p.object.number)).collect::<HashSet<_>>();
        assert!(names(SHARE).is_disjoint(&names(Share { seed: 8, ..SHARE })));
        let (left, right) = (Share { of: 2, ..SHARE }, Share { number: 1, of: 2, ..SHARE });
        assert!(names(left).is_disjoint(&names(right)));
    }

    #[test]
    fn the_hot_hundredth_takes_its_tenth_and_the_working_set_stays_capped() {
        let mut config = config();
        config.working_set_bytes = Some(20 << 20);
        let pages = config.working_set_pages();
        let mut planner = PolyMixPlanner::new(&config, SHARE);
        let (mut hot, mut recurring) = (0, 0);
        for _ in 0..200_000 {
            let planned = planner.next(1.0, 1.0);
            let page = (planned.object.number & ((1 << 38) - 1)) >> 4;
            if !planned.is_new && planned.object.number & 15 == 0 {
                // A page made since by another robot may have pushed it out while its images were asked for.
                assert!(page + pages + 1 >= planner.pages, "page {page} of {}", planner.pages);
                recurring += 1;
                hot += u64::from(page.is_multiple_of(HOT_EVERY));
            }
        }
        let share = hot as f64 / recurring as f64;
        assert!((share - 0.109).abs() < 0.01, "{share}");
    }

    #[test]
    fn the_phases_last_as_published_and_shrink_with_the_time_scale() {
        let minutes = |config: &PolyMix| -> f64 {
            let spans = config.phases().into_iter().filter_map(|phase| match phase.end {
                End::Time(span) => Some(span.as_secs_f64() / 60.0),
                _ => None,
            });
            spans.sum()
        };
        assert_eq!(minutes(&config()), 3.0 + 7.0 * 30.0 + 480.0);
        let four = PolyMix::new(Generation::Four, 300.0, 1 << 30);
        assert_eq!(minutes(&four), 620.0, "10.33 hours, as its page says");
        assert!((minutes(&PolyMix { time_scale: 60.0, ..four }) - 620.0 / 60.0).abs() < 1e-6);
    }
}

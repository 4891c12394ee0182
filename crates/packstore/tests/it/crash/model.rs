//! What a store may hold, told by what was asked of it and what it acknowledged.

use std::collections::BTreeMap;

use packstore::Clock;

/// A body, by the number of its put. `None`: no object.
pub type Version = Option<u64>;

/// What is known of a key.
#[derive(Clone, Debug, Default)]
struct Fate {
    /// The last that was acknowledged.
    certain: Version,
    /// Older ones that a process' end made uncertain until the next acknowledgement.
    lingering: Vec<Version>,
    /// Asked for and not acknowledged, in order.
    begun: Vec<Version>,
    /// All that was ever asked for.
    ever: Vec<Version>,
}

/// All keys.
#[derive(Clone, Debug, Default)]
pub struct Model {
    fates: BTreeMap<Vec<u8>, Fate>,
    /// Objects may go at any time.
    pub evicts: bool,
    /// An index was lost: what was deleted may name again what it named before.
    pub index_lost: bool,
    /// Where objects expire: the time, in seconds since 1970, and the store's clock, which shows it.
    pub now_s: Option<u32>,
    pub clock: Clock,
}

/// When histories begin whose objects expire.
const BEGUN_S: u32 = 1_000_000_000;

impl Model {
    /// Of a history in which objects may expire.
    pub fn of(expires: bool) -> Self {
        let clock = if expires { Clock::manual(BEGUN_S) } else { Clock::default() };
        Self { now_s: expires.then_some(BEGUN_S), clock, ..Self::default() }
    }

    /// Of another machine with the same history: its clock is its own from now on.
    pub fn elsewhere(&self) -> Self {
        let clock = self.now_s.map_or_else(Clock::default, Clock::manual);
        Self { clock, ..self.clone() }
    }

    /// A step takes a second.
    pub fn at_step(&mut self, step: u64) {
        if let Some(now_s) = &mut self.now_s {
            *now_s = BEGUN_S + step as u32;
            self.clock.set(*now_s);
        }
    }

    /// What there is of a version now.
    fn left(&self, version: Version) -> Version {
        let is_over =
            |version: &u64| self.now_s.is_some_and(|now_s| (1..=now_s).contains(&expires_s(*version)));
        version.filter(|version| !is_over(version))
    }

    pub fn begin(&mut self, key: &[u8], version: Version) {
        let fate = self.fates.entry(key.to_vec()).or_default();
        fate.begun.push(version);
        fate.ever.push(version);
    }

    /// The oldest that was begun is acknowledged.
    pub fn done(&mut self, key: &[u8]) {
        let fate = self.fates.get_mut(key).expect("it was begun");
        fate.certain = fate.begun.remove(0);
        fate.lingering.clear();
    }

    /// All that was begun is.
    pub fn all_done(&mut self) {
        for fate in self.fates.values_mut() {
            fate.lingering.clear();
            if let Some(last) = fate.begun.drain(..).next_back() {
                fate.certain = last;
            }
        }
    }

    /// The newest that was begun was refused, and not done.
    pub fn refused(&mut self, key: &[u8]) {
        self.fates.get_mut(key).expect("it was begun").begun.pop();
    }

    /// What the key should name now, if nothing is wrong.
    pub fn now(&self, key: &[u8]) -> Version {
        let fate = self.fates.get(key)?;
        self.left(fate.begun.last().copied().unwrap_or(fate.certain))
    }

    /// Of all keys that were ever asked for.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.fates.keys().map(Vec::as_slice)
    }

    /// What the key may name, as the store kept its promises.
    pub fn allowed(&self, key: &[u8]) -> Vec<Version> {
        let Some(fate) = self.fates.get(key) else { return vec![None] };
        let mut allowed = vec![self.left(fate.certain)];
        allowed.extend(fate.lingering.iter().chain(&fate.begun).map(|&version| self.left(version)));
        if self.index_lost && allowed.contains(&None) {
            allowed.extend(fate.ever.iter().map(|&version| self.left(version)));
        }
        if self.evicts {
            allowed.push(None);
        }
        allowed
    }

    /// A reopened store named this. `for_good`: it was found after a loss of power, so it can change no more.
    pub fn settle(&mut self, key: &[u8], found: Version, for_good: bool) {
        let fate = self.fates.entry(key.to_vec()).or_default();
        let before = std::mem::replace(&mut fate.certain, found);
        fate.lingering.push(before);
        fate.lingering.append(&mut fate.begun);
        if for_good {
            fate.lingering.clear();
        }
    }
}

/// The body of a put, of any length from none to several pieces, unlike all others.
pub fn body(version: u64) -> Vec<u8> {
    let mut state = mixed(version);
    let wanted = state % 100;
    let any = mixed(state) as usize;
    let length = match wanted {
        0..3 => any % 9,
        3..60 => any % 700,
        60..92 => any % 4_000,
        92..99 => any % 20_000,
        _ => any % 200_000,
    };
    let mut body = Vec::with_capacity(length + 8);
    body.extend_from_slice(&version.to_le_bytes());
    while body.len() < length {
        state = mixed(state);
        body.extend_from_slice(&state.to_le_bytes());
    }
    body.truncate(length);
    body
}

/// When a put of a history expires in which objects do, by the step that it is of: never, soon, or much later.
pub fn expires_s(version: u64) -> u32 {
    let (drawn, put_s) = (mixed(version ^ 0x771), BEGUN_S + (version / 16) as u32);
    match drawn % 4 {
        0 => 0,
        1 => put_s + 1_000 + (drawn >> 8) as u32 % 100_000,
        _ => put_s + 1 + (drawn >> 8) as u32 % 25,
    }
}

/// Attributes of a put.
pub fn meta(version: u64) -> Vec<u8> {
    version.to_le_bytes()[..(version % 9) as usize].to_vec()
}

/// A number unlike the one before (SplitMix64).
pub fn mixed(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

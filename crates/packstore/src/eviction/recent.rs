/// Keys seen recently, as fingerprints in two bytes each: objects that were evicted, or asked for once.
/// Bounded: the oldest of a row of eight makes room. One key in 8,000 is taken for another.
pub struct Recent {
    rows: Box<[[u16; ROW]]>,
}

impl Recent {
    /// Of about this many keys.
    pub fn new(keys: u32) -> Self {
        Self { rows: vec![[0; ROW]; (keys as usize).div_ceil(ROW).max(1)].into() }
    }

    /// Notes a key as the latest.
    pub fn note(&mut self, key: u64) {
        let (row, print) = self.row(key);
        let end = row.iter().position(|&held| held == print || held == 0).unwrap_or(ROW - 1);
        row[..=end].rotate_right(1);
        row[0] = print;
    }

    /// Whether the key was noted and is not forgotten; then it is, by this.
    pub fn take(&mut self, key: u64) -> bool {
        let (row, print) = self.row(key);
        let Some(found) = row.iter().position(|&held| held == print) else { return false };
        row[found..].rotate_left(1);
        row[ROW - 1] = 0;
        true
    }

    /// For admission at the second request: whether the key was asked for before; else it is noted.
    pub fn admits(&mut self, key: u64) -> bool {
        let known = self.take(key);
        if !known {
            self.note(key);
        }
        known
    }

    /// Memory it takes.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.rows)
    }

    fn row(&mut self, key: u64) -> (&mut [u16; ROW], u16) {
        let row = (u128::from(key) * self.rows.len() as u128) >> 64;
        (&mut self.rows[row as usize], (key as u16).max(1))
    }
}

const ROW: usize = 8;

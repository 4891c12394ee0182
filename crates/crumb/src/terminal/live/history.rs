//! The last values of a figure, for a sparkline.

use std::collections::VecDeque;

/// More than the widest view shows.
const VALUES_MAX: usize = 120;

/// Heights of a sparkline's bar, in eighths of a cell.
const EIGHTHS: f64 = 8.0;

/// The last values of a figure, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct History(VecDeque<f64>);

impl History {
    /// Adds the newest value, and forgets the oldest where there are many.
    pub fn push(&mut self, value: f64) {
        if self.0.len() == VALUES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(if value.is_finite() { value.max(0.0) } else { 0.0 });
    }

    /// The newest value.
    pub fn newest(&self) -> Option<f64> {
        self.0.back().copied()
    }

    /// The newest `columns` values as heights of bars in eighths, and the highest of these values. What is not zero has a bar.
    pub fn bars(&self, columns: usize) -> (Vec<u64>, f64) {
        let shown = self.0.len().saturating_sub(columns);
        let peak = self.0.range(shown..).copied().fold(0.0, f64::max);
        let height = |value: &f64| if *value > 0.0 { (EIGHTHS * value / peak).ceil() as u64 } else { 0 };
        (self.0.range(shown..).map(height).collect(), peak)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_those_of_the_newest_values_by_the_highest_of_them() {
        let mut history = History::default();
        assert_eq!(history.bars(5), (vec![], 0.0));
        [800.0, 0.0, 1.0, 4.0, 8.0].into_iter().for_each(|value| history.push(value));
        assert_eq!(history.bars(4), (vec![0, 1, 4, 8], 8.0));
        (0..500).for_each(|_| history.push(f64::NAN));
        assert_eq!((history.0.len(), history.newest()), (VALUES_MAX, Some(0.0)));
    }
}

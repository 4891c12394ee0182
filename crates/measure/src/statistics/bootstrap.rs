//! The bootstrap distribution of a median, exactly: where the median of a resample falls, and how often.
//!
//! ```text
//! odd n = 2m+1:  the median is the (m+1)-th of the resample; P(it is sample i) by the binomial law
//! even n = 2m:   it is the middle of samples i <= j; for i < j exactly m of the resample are <= i,
//!                P = C(2m, m) [(i/n)^m - ((i-1)/n)^m] [((n-j+1)/n)^m - ((n-j)/n)^m]
//! ```
//!
//! Always holds: the weights are not negative and sum to 1 but for rounding.

/// A distribution over finitely many values, by rising value.
#[derive(Clone, Debug)]
pub(super) struct MedianLaw {
    values: Vec<f64>,
    weights: Vec<f64>,
}

/// The distribution of the difference of two independent ones.
#[derive(Debug)]
pub(super) struct Difference<'a> {
    of: &'a MedianLaw,
    less: &'a MedianLaw,
}

/// Values of less weight are left out: with hundreds of samples most would be, and cost time.
const WEIGHT_MIN: f64 = 1e-12;

impl MedianLaw {
    /// Of the resamples of these samples, which are sorted and not empty.
    pub fn of(sorted: &[f64]) -> Self {
        let n = sorted.len();
        let mut found = Vec::with_capacity(n);
        // Chance that the k-th smallest of the resample (k from 1) is at most sample i (from 1).
        let at_most = |k: usize, i: usize| 1.0 - binomial_at_most(k - 1, n, i as f64 / n as f64);
        let is = |k: usize, i: usize| at_most(k, i) - at_most(k, i - 1);
        if n % 2 == 1 {
            found.extend((1..=n).map(|i| (sorted[i - 1], is(n / 2 + 1, i))));
        } else {
            let m = n / 2;
            let ways = log_choose(n, m);
            let power =
                |of: usize, to: usize| if of == 0 { 0.0 } else { (to as f64) * (of as f64 / n as f64).ln() };
            let step = |of: usize| match of {
                0 => 0.0,
                1 => (ways / 2.0 + power(1, m)).exp(),
                _ => (ways / 2.0 + power(of, m)).exp() - (ways / 2.0 + power(of - 1, m)).exp(),
            };
            for i in 1..=n {
                let lower = step(i);
                let mut both = is(m, i);
                for j in i + 1..=n {
                    let weight = lower * step(n - j + 1);
                    both -= weight;
                    if weight > WEIGHT_MIN {
                        found.push((f64::midpoint(sorted[i - 1], sorted[j - 1]), weight));
                    }
                }
                found.push((sorted[i - 1], both));
            }
        }
        found.retain(|(_, weight)| *weight > WEIGHT_MIN);
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (values, weights) = found.into_iter().unzip();
        Self { values, weights }
    }

    /// The law of this one's value less the other's; none when both have only one value.
    pub fn minus<'a>(&'a self, less: &'a Self) -> Option<Difference<'a>> {
        let several = |law: &Self| law.values.first() != law.values.last();
        (several(self) || several(less)).then_some(Difference { of: self, less })
    }
}

impl Difference<'_> {
    /// The ends that leave out as much on either side.
    pub fn ends(&self, confidence: f64) -> [f64; 2] {
        let outside = (1.0 - confidence) / 2.0;
        [self.quantile(|below| below > outside), self.quantile(|below| below >= 1.0 - outside)]
    }

    /// The smallest difference whose cumulative weight is `enough`, to within the bisection's last bit.
    fn quantile(&self, enough: impl Fn(f64) -> bool) -> f64 {
        let last = |values: &[f64]| values[values.len() - 1];
        let mut low = self.of.values[0] - last(&self.less.values);
        let mut high = last(&self.of.values) - self.less.values[0];
        if enough(self.at_most(low)) {
            return low;
        }
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if enough(self.at_most(middle)) { high = middle } else { low = middle }
        }
        high
    }

    /// Weight of the differences up to `limit`: one sweep, since both laws are sorted.
    fn at_most(&self, limit: f64) -> f64 {
        // A difference that was computed on the other way must not miss its own value by rounding.
        let limit = limit + 1e-12 * limit.abs().max(1.0);
        let mut total = 0.0;
        let (mut below, mut at) = (0.0, 0);
        for (value, weight) in self.less.values.iter().zip(&self.less.weights) {
            while at < self.of.values.len() && self.of.values[at] <= value + limit {
                below += self.of.weights[at];
                at += 1;
            }
            total += weight * below;
        }
        total
    }
}

/// Chance of at most `k` successes in `n` tries.
pub(super) fn binomial_at_most(k: usize, n: usize, chance: f64) -> f64 {
    if chance <= 0.0 || k >= n {
        return 1.0;
    }
    if chance >= 1.0 {
        return 0.0;
    }
    let (yes, no) = (chance.ln(), (1.0 - chance).ln());
    let one = |i: usize| (log_choose(n, i) + i as f64 * yes + (n - i) as f64 * no).exp();
    (0..=k).map(one).sum::<f64>().min(1.0)
}

/// ln of n over k.
fn log_choose(n: usize, k: usize) -> f64 {
    (1..=k.min(n - k)).map(|i| ((n + 1 - i) as f64 / i as f64).ln()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All resamples, one by one.
    fn by_counting(sorted: &[f64]) -> Vec<f64> {
        let n = sorted.len();
        let mut medians: Vec<f64> = (0..n.pow(n as u32))
            .map(|mut number| {
                let mut resample: Vec<f64> = (0..n)
                    .map(|_| {
                        let sample = sorted[number % n];
                        number /= n;
                        sample
                    })
                    .collect();
                resample.sort_by(f64::total_cmp);
                f64::midpoint(resample[(n - 1) / 2], resample[n / 2])
            })
            .collect();
        medians.sort_by(f64::total_cmp);
        medians
    }

    #[test]
    fn the_law_of_the_median_is_that_of_counting_every_resample() {
        for samples in [
            &[1.0, 2.0, 4.0][..],
            &[1.0, 2.0, 4.0, 8.0],
            &[1.0, 2.0, 4.0, 8.0, 16.0],
            &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
        ] {
            let counted = by_counting(samples);
            let law = MedianLaw::of(samples);
            assert!((law.weights.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            let mut below = 0.0;
            for (value, weight) in law.values.iter().zip(&law.weights) {
                below += weight;
                let share = counted.partition_point(|median| median <= value) as f64 / counted.len() as f64;
                assert!((below - share).abs() < 1e-9, "{samples:?} at {value}: {below} and not {share}");
            }
        }
    }

    #[test]
    fn hundreds_of_samples_are_no_burden() {
        let samples: Vec<f64> = (0..600).map(f64::from).collect();
        let law = MedianLaw::of(&samples);
        assert!((law.weights.iter().sum::<f64>() - 1.0).abs() < 1e-6);
        assert!(law.values.len() < 60_000, "{}", law.values.len());
    }
}

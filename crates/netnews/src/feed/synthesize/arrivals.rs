//! When article i arrives: weekdays, hours and the whims of days, as an increasing function of i.

use super::draw::{Draw, Purpose};
use super::model;

/// Days of a feed with the articles that came before each.
pub(super) struct Arrivals {
    /// Articles before the day, one entry more than there are days.
    before: Vec<f64>,
    /// Share of a day's articles before each hour, one entry more than there are hours.
    hours: [f64; 25],
}

impl Arrivals {
    pub(super) fn new(seed: u64, articles: u64) -> Self {
        let mut before = vec![0.0];
        let mut sum = 0.0;
        while sum <= articles as f64 {
            let day = before.len() - 1;
            let whim = (Draw::new(seed, Purpose::Days, day as u64).normal() * model::DAY_SIGMA).exp();
            sum += model::ARTICLES_PER_DAY * model::WEEKDAYS[day % 7] * whim;
            before.push(sum);
        }
        let total: f64 = model::HOURS.iter().sum();
        let mut hours = [0.0; 25];
        for (hour, rate) in model::HOURS.iter().enumerate() {
            hours[hour + 1] = hours[hour] + rate / total;
        }
        Self { before, hours }
    }

    /// Unix time in seconds.
    pub(super) fn unix_time(&self, article: u64) -> i64 {
        let article = article as f64;
        let day = (self.before.partition_point(|before| *before <= article) - 1).min(self.before.len() - 2);
        let (from, to) = (self.before[day], self.before[day + 1]);
        let share = ((article - from) / (to - from)).clamp(0.0, 1.0);
        let hour = (self.hours.partition_point(|before| *before <= share) - 1).min(23);
        let within = (share - self.hours[hour]) / (self.hours[hour + 1] - self.hours[hour]);
        let seconds = (hour as f64 + within.clamp(0.0, 1.0)) * 3600.0;
        model::BEGINS_UNIX + day as i64 * 86_400 + seconds as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_goes_back_and_half_a_week_has_about_the_papers_articles() {
        let arrivals = Arrivals::new(1, 1_000_000);
        let times: Vec<i64> = (0..1_000_000).step_by(97).map(|article| arrivals.unix_time(article)).collect();
        assert!(times.windows(2).all(|two| two[0] <= two[1]));
        let half_week = model::BEGINS_UNIX + 84 * 3600;
        let count = times.iter().filter(|time| **time < half_week).count() * 97;
        assert!((250_000..420_000).contains(&count), "{count} articles from Monday to Thursday noon");
    }
}

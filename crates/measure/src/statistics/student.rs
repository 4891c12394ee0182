//! Student's t distribution for whole degrees of freedom.
//!
//! By the finite sums of Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.3 and 26.7.4, and
//! bisection.

/// The value below which a share of the distribution lies; `share` from 0.5 to below 1.
pub(super) fn quantile(share: f64, freedom: u32) -> f64 {
    let inside = 2.0 * share - 1.0;
    // In the angle, so that the search has two ends.
    let (mut low, mut high) = (0.0, std::f64::consts::FRAC_PI_2);
    for _ in 0..80 {
        let angle = f64::midpoint(low, high);
        if within(angle, freedom) < inside { low = angle } else { high = angle }
    }
    low.tan() * f64::from(freedom).sqrt()
}

/// Chance of lying within plus or minus t, where `angle` is the arc tangent of t / sqrt(freedom).
fn within(angle: f64, freedom: u32) -> f64 {
    let (sin, cos) = angle.sin_cos();
    if freedom == 1 {
        return angle * std::f64::consts::FRAC_2_PI;
    }
    // Odd: cos + 2/3 cos^3 + ...; even: 1 + 1/2 cos^2 + ...
    let odd = freedom % 2 == 1;
    let mut term = if odd { cos } else { 1.0 };
    let mut sum = term;
    let mut at = if odd { 3 } else { 2 };
    while at < freedom {
        term *= cos * cos * f64::from(at - 1) / f64::from(at);
        sum += term;
        at += 2;
    }
    if odd { (angle + sin * sum) * std::f64::consts::FRAC_2_PI } else { sin * sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_printed_tables() {
        for (share, freedom, printed) in [
            (0.975, 1, 12.706),
            (0.975, 2, 4.303),
            (0.975, 4, 2.776),
            (0.975, 5, 2.571),
            (0.995, 8, 3.355),
            (0.9995, 9, 4.781),
            (0.975, 60, 2.000),
        ] {
            let found = quantile(share, freedom);
            assert!((found - printed).abs() < 6e-4, "{share} {freedom}: {found} and not {printed}");
        }
    }
}

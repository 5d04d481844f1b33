//! Median and spread of repeated measurements.

/// Repeated measurements of one quantity, in ascending order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
        self.0.sort_by(f64::total_cmp);
    }

    /// Returns the middle value, for an even number the mean of the two middle values, or zero without measurements.
    pub(crate) fn median(&self) -> f64 {
        let middle = self.0.len() / 2;
        match self.0.len() {
            0 => 0.0,
            length if length % 2 == 1 => self.0[middle],
            _ => (self.0[middle - 1] + self.0[middle]) / 2.0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the smallest value that at least this share of the values does not exceed; zero without measurements.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let rank = (share * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
    }

    pub(crate) fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or(0.0)
    }

    pub(crate) fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or(0.0)
    }

    /// Formats as `median (smallest–largest)` with `decimals` decimals.
    pub(crate) fn format_with_range(&self, decimals: usize) -> String {
        let (low, high) = (self.min(), self.max());
        format!("{:.decimals$} ({low:.decimals$}–{high:.decimals$})", self.median())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_does_not_depend_on_the_order() {
        for (values, median, shown) in [
            (vec![], 0.0, "0.0 (0.0–0.0)"),
            (vec![2.0], 2.0, "2.0 (2.0–2.0)"),
            (vec![9.0, 1.0, 2.0], 2.0, "2.0 (1.0–9.0)"),
            (vec![4.0, 1.0, 2.0, 3.0], 2.5, "2.5 (1.0–4.0)"),
        ] {
            let mut samples = Samples::default();
            values.into_iter().for_each(|value| samples.push(value));
            assert_eq!((samples.median(), samples.format_with_range(1).as_str()), (median, shown));
        }
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let mut samples = Samples::default();
        assert_eq!(samples.quantile(0.99), 0.0);
        (1..=200).rev().for_each(|value| samples.push(f64::from(value)));
        for (share, expected) in
            [(0.0, 1.0), (0.5, 100.0), (0.501, 101.0), (0.99, 198.0), (1.0, 200.0)]
        {
            assert_eq!(samples.quantile(share), expected, "{share}");
        }
    }
}

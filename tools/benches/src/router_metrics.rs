//! The metrics of a measured router, from its admin listener.

use crate::broker_connections::fetch_page;
use crate::server_process::ServerProcess;
use test_kit::commands::Failure;

/// The metrics of a router at one time.
pub(crate) struct RouterMetrics(String);

impl RouterMetrics {
    /// Fetches the metrics of a router that was started with an admin listener.
    pub(crate) fn fetch(router: &ServerProcess) -> Result<Self, Failure> {
        let admin = router.admin.ok_or("the router has no admin listener")?;
        fetch_page(admin, "/metrics").map(Self)
    }

    /// Returns the length of the text, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Returns the sum of all samples of a metric; `None` if there are none.
    pub(crate) fn sum(&self, name: &str) -> Option<f64> {
        self.samples(name).reduce(|sum, sample| sum + sample)
    }

    /// Returns the number of samples of a metric.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.samples(name).count()
    }

    /// Returns the samples of a metric.
    fn samples<'a>(&'a self, name: &'a str) -> impl Iterator<Item = f64> + 'a {
        self.0.lines().filter_map(move |line| {
            let rest = line.strip_prefix(name)?;
            let value = match rest.strip_prefix('{') {
                Some(labels) => labels.rsplit_once('}')?.1,
                None => rest,
            };
            // The name of another metric may begin with this one.
            value.strip_prefix(' ')?.split_whitespace().next()?.parse::<f64>().ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_samples_of_one_metric_are_added_and_counted() {
        let text = "# TYPE a gauge\na 3\na_total{x=\"1\"} 4\na_total{x=\"} 2\"} 5 1700\nb 6\n";
        let metrics = RouterMetrics(text.to_owned());
        for (name, sum, count) in
            [("a", Some(3.0), 1), ("a_total", Some(9.0), 2), ("b", Some(6.0), 1), ("c", None, 0)]
        {
            assert_eq!((metrics.sum(name), metrics.count(name)), (sum, count), "{name}");
        }
    }
}

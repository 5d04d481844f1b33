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

    /// Returns the sum of all samples of a metric; `None` if there are none.
    pub(crate) fn sum(&self, name: &str) -> Option<f64> {
        let samples = self.0.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let value = match rest.strip_prefix('{') {
                Some(labels) => labels.rsplit_once('}')?.1,
                None => rest,
            };
            // The name of another metric may begin with this one.
            value.strip_prefix(' ')?.split_whitespace().next()?.parse::<f64>().ok()
        });
        samples.reduce(|sum, sample| sum + sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_samples_of_one_metric_are_added() {
        let text = "# TYPE a gauge\na 3\na_total{x=\"1\"} 4\na_total{x=\"} 2\"} 5 1700\nb 6\n";
        let metrics = RouterMetrics(text.to_owned());
        for (name, expected) in
            [("a", Some(3.0)), ("a_total", Some(9.0)), ("b", Some(6.0)), ("c", None)]
        {
            assert_eq!(metrics.sum(name), expected, "{name}");
        }
    }
}

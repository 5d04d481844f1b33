//! The time for which a client waits for the response, by a header of its request.

use std::time::{Duration, Instant};

use http::HeaderMap;
use upstream::{TimeoutFormat, TimeoutHeader};

/// The end of the time for which the client of a request waits. It is an extension of the request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ClientDeadline(pub Instant);

/// The headers by which clients say how long they wait (`limits.deadline_headers`).
#[derive(Debug, Default)]
pub struct DeadlineHeaders(Box<[TimeoutHeader]>);

impl DeadlineHeaders {
    /// Reads the headers from the configuration.
    pub fn new(configured: &[config::TimeoutHeader]) -> Self {
        Self(configured.iter().map(timeout_header).collect())
    }

    /// Returns the deadline of a request that begins now; `None` if it has none of the headers.
    // hot path: one look-up for each configured header, one by default
    pub fn deadline(&self, headers: &HeaderMap) -> Option<ClientDeadline> {
        let time = self.shortest_time(headers)?;
        // A time that no clock can express is no limit.
        Instant::now().checked_add(time).map(ClientDeadline)
    }

    /// Returns the shortest time that the headers of a request contain. A value that cannot be read is ignored, like
    /// any header that the router does not know.
    fn shortest_time(&self, headers: &HeaderMap) -> Option<Duration> {
        let values = self.0.iter().filter_map(|header| {
            let value = headers.get(&header.name)?;
            header.format.parse(value.as_bytes())
        });
        values.min()
    }
}

/// Returns a header as the client of subgraphs knows it.
pub fn timeout_header(configured: &config::TimeoutHeader) -> TimeoutHeader {
    let format = match configured.format {
        config::TimeoutFormat::Milliseconds => TimeoutFormat::Milliseconds,
        config::TimeoutFormat::Seconds => TimeoutFormat::Seconds,
        config::TimeoutFormat::Grpc => TimeoutFormat::Grpc,
    };
    TimeoutHeader { name: configured.name.clone(), format }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn the_shortest_time_of_all_headers_counts_and_unreadable_values_do_not() {
        let configured =
            |name, format| config::TimeoutHeader { name: HeaderName::from_static(name), format };
        let headers = DeadlineHeaders::new(&[
            configured("x-timeout-ms", config::TimeoutFormat::Milliseconds),
            configured("x-timeout", config::TimeoutFormat::Seconds),
            configured("grpc-timeout", config::TimeoutFormat::Grpc),
        ]);
        let time = |sent: &[(&'static str, &'static str)]| {
            let sent = sent.iter().map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            });
            headers.shortest_time(&sent.collect())
        };
        let millis = |it| Some(Duration::from_millis(it));
        assert_eq!(time(&[]), None);
        assert_eq!(time(&[("x-timeout-ms", "250")]), millis(250));
        assert_eq!(time(&[("x-timeout-ms", "250"), ("x-timeout", "0.2")]), millis(200));
        assert_eq!(time(&[("x-timeout-ms", "soon"), ("grpc-timeout", "3S")]), millis(3000));
        assert_eq!(time(&[("x-timeout-ms", "soon")]), None);
        assert_eq!(DeadlineHeaders::default().deadline(&HeaderMap::new()), None);
    }

    #[test]
    fn the_time_for_which_envoy_waits_is_read_by_default() {
        let headers = DeadlineHeaders::new(&config::Config::default().limits.deadline_headers);
        let name = HeaderName::from_static("x-envoy-expected-rq-timeout-ms");
        let sent = HeaderMap::from_iter([(name, HeaderValue::from_static("1500"))]);
        assert_eq!(headers.shortest_time(&sent), Some(Duration::from_millis(1500)));
        assert_eq!(headers.shortest_time(&HeaderMap::new()), None);
    }
}

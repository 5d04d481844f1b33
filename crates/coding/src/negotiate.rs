//! Negotiation of a content coding by `accept-encoding` (RFC 9110, section 12.5.3).

use crate::coding::Coding;

/// The codings that a client accepts for a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Preference {
    /// The coding to use, if any.
    pub coding: Option<Coding>,
    /// True if the body may also be sent uncompressed, which almost every client accepts.
    pub identity: bool,
}

/// The maximum number of elements that are read, more than any client sends; further ones are ignored.
const ELEMENTS_MAX: usize = 32;

/// Returns the preference that the values of all `accept-encoding` headers state. Without any header the body is sent
/// uncompressed, because clients that accept compression say so.
///
/// The client's qualities decide first; among equal ones, the order of [`Coding::ALL`].
pub fn negotiate<'a>(values: impl IntoIterator<Item = &'a str>) -> Preference {
    let mut qualities = [None; Coding::ALL.len()];
    let (mut any, mut identity) = (None, None);
    let elements = values.into_iter().flat_map(|value| value.split(','));
    for element in elements.take(ELEMENTS_MAX) {
        let mut parts = element.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let quality = parts.filter_map(quality).next().unwrap_or(1000);
        if name == "*" {
            any = Some(quality);
        } else if name.eq_ignore_ascii_case("identity") {
            identity = Some(quality);
        } else if let Some(coding) = Coding::from_name(name) {
            let at = Coding::ALL.iter().position(|it| *it == coding).unwrap_or_default();
            qualities[at] = Some(quality);
        }
    }
    let quality_of = |at: usize| qualities[at].or(any).unwrap_or(0);
    let best = (0..Coding::ALL.len()).rev().max_by_key(|at| quality_of(*at));
    let best = best.filter(|at| quality_of(*at) > 0);
    // A client that prefers the uncompressed body (`identity, gzip;q=0.5`) gets it.
    let plain = identity.unwrap_or(0);
    let coding = best.filter(|at| quality_of(*at) >= plain).map(|at| Coding::ALL[at]);
    Preference { coding, identity: identity.or(any) != Some(0) }
}

/// Returns the quality of a parameter `q=0.5`, in thousandths; a malformed quality counts as 1.
fn quality(parameter: &str) -> Option<u16> {
    let (name, value) = parameter.split_once('=')?;
    if !name.trim().eq_ignore_ascii_case("q") {
        return None;
    }
    match value.trim().parse::<f32>() {
        Ok(quality) if (0.0..=1.0).contains(&quality) => Some((quality * 1000.0) as u16),
        _ => Some(1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "zstd")]
    #[test]
    fn the_best_coding_that_both_sides_support_is_chosen() {
        use Coding::{Brotli, Deflate, Gzip, Zstd};
        for (accepted, coding, identity) in [
            ("gzip, deflate, br, zstd", Some(Zstd), true),
            ("gzip, deflate, br", Some(Brotli), true),
            ("deflate, gzip", Some(Gzip), true),
            ("DEFLATE", Some(Deflate), true),
            ("x-gzip", Some(Gzip), true),
            ("br;q=0.5, gzip;q=0.8", Some(Gzip), true),
            ("gzip;q=1.0, identity; q=0.5, *;q=0", Some(Gzip), true),
            ("identity, gzip;q=0.5", None, true),
            ("identity", None, true),
            ("*", Some(Zstd), true),
            ("*;q=0.1, zstd;q=0", Some(Brotli), true),
            ("gzip, identity;q=0", Some(Gzip), false),
            ("gzip, *;q=0", Some(Gzip), false),
            ("compress, identity;q=0", None, false),
            ("gzip;q=0", None, true),
            ("compress", None, true),
            ("", None, true),
            ("gzip;q=nonsense", Some(Gzip), true),
        ] {
            assert_eq!(negotiate([accepted]), Preference { coding, identity }, "{accepted}");
        }
        assert_eq!(negotiate([]), Preference { coding: None, identity: true });
        assert_eq!(negotiate(["br;q=0.1", "gzip"]).coding, Some(Gzip));
    }

    #[cfg(not(feature = "zstd"))]
    #[test]
    fn a_coding_that_the_build_lacks_is_never_chosen() {
        let best = |accepted| negotiate([accepted]).coding;
        assert_eq!(best("gzip, deflate, br, zstd"), Some(Coding::Brotli));
        assert_eq!(best("zstd"), None);
        assert_eq!(best("*"), Some(Coding::Brotli));
        assert_eq!(Coding::from_name("zstd"), None);
    }
}

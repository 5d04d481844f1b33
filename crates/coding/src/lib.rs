//! Content codings of HTTP (RFC 9110, section 8.4.1): which one both sides know, compressing whole
//! bodies, and expanding them with a bound; and the coding of single messages of WebSockets.
//!
//! Invariant: bytes in, bytes out. Knows no HTTP library, no sockets and no threads; who has a large
//! body calls it where blocking is fine.

mod compress;
mod expand;
mod message;
mod negotiate;

pub use compress::compress;
pub use expand::{ExpandError, expand};
pub use message::{STORED_HEAD_BYTES, append_stored, deflate_message, inflate_message};
pub use negotiate::{Preference, negotiate};

/// A way to make a body smaller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Coding {
    /// RFC 8878, with windows of at most 8 MiB (RFC 9659).
    Zstd,
    /// RFC 7932.
    Brotli,
    /// RFC 1952.
    Gzip,
    /// RFC 1950: the zlib format, as RFC 9110 wants it, and not bare deflate.
    Deflate,
}

impl Coding {
    /// All, in the order in which we like to use them. Where a client takes several, zstd costs least
    /// for what it saves (`cargo bench -p coding`).
    pub const ALL: [Self; 4] = [Self::Zstd, Self::Brotli, Self::Gzip, Self::Deflate];

    /// All names, for `accept-encoding`.
    pub const ACCEPT: &'static str = "zstd, br, gzip, deflate";

    /// The name in `content-encoding`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }

    /// The coding with this name, in any letter case; `x-gzip` is the old name of `gzip`
    /// (RFC 9110, section 8.4.1.3).
    pub fn from_name(name: &str) -> Option<Self> {
        let known = Self::ALL.into_iter().find(|it| it.name().eq_ignore_ascii_case(name));
        known.or_else(|| name.eq_ignore_ascii_case("x-gzip").then_some(Self::Gzip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_for_accept_encoding_names_all() {
        assert_eq!(Coding::ALL.map(Coding::name).join(", "), Coding::ACCEPT);
    }
}

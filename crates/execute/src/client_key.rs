//! Identifies the client that causes work, so that queues and byte accounts can be fair among clients.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::OnceLock;

/// An opaque key of one client: its network address, or the identity of its token where there is one.
///
/// Equal for all connections of one client. It says nothing about the client, is made with a key of this process, and
/// so can be logged or counted, but not stored. Two clients have the same key with a chance of 1 in 2^64; they then
/// share their part of a queue and nothing else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientKey(u64);

impl ClientKey {
    /// Work that the router starts by itself, and clients without an address (Unix domain sockets).
    pub const UNKNOWN: Self = Self(0);

    /// The key of a client that is known by its network address only.
    ///
    /// An IPv6 client has 2^64 addresses (RFC 6177), so those with the same first 64 bits have one key.
    pub fn of_address(address: IpAddr) -> Self {
        Self::of(&("address", network_of(address)))
    }

    /// The key of a client that has proved an identity: the fingerprint of its token, or the subject in it.
    pub fn of_identity(identity: &[u8]) -> Self {
        Self::of(&("identity", identity))
    }

    fn of(value: &impl std::hash::Hash) -> Self {
        static HASHER: OnceLock<RandomState> = OnceLock::new();
        Self(HASHER.get_or_init(RandomState::new).hash_one(value))
    }
}

/// The network that counts as one client: the address itself for IPv4 (also where it is written within IPv6), the first
/// 64 bits for IPv6.
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> ClientKey {
        ClientKey::of_address(address.parse().expect("an address"))
    }

    #[test]
    fn addresses_of_one_ipv6_network_have_one_key_and_ipv4_addresses_each_their_own() {
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    #[test]
    fn an_identity_and_an_address_have_different_keys() {
        let keys = [ClientKey::of_identity(b"a"), ClientKey::of_identity(b"b"), of("192.0.2.1")];
        assert_ne!(keys[0], keys[1]);
        assert_ne!(keys[0], keys[2]);
        assert!(!keys.contains(&ClientKey::UNKNOWN));
    }
}

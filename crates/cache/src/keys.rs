//! Keys of entries: hashes of everything that may distinguish two responses.
//!
//! # Why a hash is safe here
//!
//! A collision of two keys would give one client the response of another. An in-process key has 128 bits of
//! SipHash-2-4, a pseudo-random function, under a secret of the process. Without the secret no input can be chosen that
//! collides, and the output never leaves the process, so an attacker can do no better than hope: with 2^27 entries in
//! the store and 2^54 lookups (28 million requests a minute with a hundred entities each, for ten years), the chance of
//! one collision is 2^-47. Keeping and comparing the whole key would cost some hundred bytes for each entry instead of
//! 16.
//!
//! A store that several routers share cannot use a secret of one process. [`SharedKey`] is SHA-256 of the same parts:
//! collisions cannot be found even by an attacker that chooses both inputs.
//!
//! Parts are hashed with their lengths, so different lists of parts are different inputs. Hashes of different kinds
//! ([`HashDomain`]) never meet.

use std::hash::Hasher as _;

use sha2::{Digest, Sha256};
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::scope::Scope;

/// The secret of all hashes of one store. Create it from random bytes when the process starts.
#[derive(Clone)]
pub struct KeySecret([u8; 16]);

impl KeySecret {
    /// Creates a secret.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl std::fmt::Debug for KeySecret {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("KeySecret(…)")
    }
}

impl KeySecret {
    /// Returns the secret of the tags that all routers with one namespace share. It is only as secret as the namespace:
    /// a client that knows it can find names with equal tags, which costs a fetch and is never wrong.
    pub fn of_namespace(namespace: &str) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(b"starling cache tags ");
        hasher.update(namespace.as_bytes());
        let digest: [u8; 32] = hasher.finalize().into();
        let mut secret = [0; 16];
        secret.copy_from_slice(&digest[..16]);
        Self(secret)
    }
}

/// The key of an entry in the store of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheKey([u64; 2]);

/// Hashes one word: an array would hash its length first, and hashers of the store take the first word as the hash.
impl std::hash::Hash for CacheKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64(self.0[0]);
    }
}

impl CacheKey {
    /// Returns a part of the key, which is uniform, and different for nearly all keys.
    pub fn word(self) -> u64 {
        self.0[0]
    }

    /// Returns the two halves, each of them uniform.
    pub(crate) fn words(self) -> [u64; 2] {
        self.0
    }
}

/// The key of an entry in a store that several routers share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SharedKey(pub [u8; 32]);

/// The kind of a hash. The numbers are part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HashDomain {
    /// A tag.
    Tag = 1,
    /// An entity of one subgraph.
    Entity = 2,
    /// A root field of one subgraph.
    RootFields = 3,
    /// A whole response to a client.
    Response = 4,
}

/// Hashes a list of parts with a secret.
#[derive(Clone)]
pub(crate) struct PartHasher(SipHasher24);

impl PartHasher {
    pub(crate) fn new(secret: &KeySecret, domain: HashDomain) -> Self {
        let mut hasher = SipHasher24::new_with_key(&secret.0);
        hasher.write(&[domain as u8]);
        Self(hasher)
    }

    pub(crate) fn part(&mut self, bytes: &[u8]) {
        self.0.write(&(bytes.len() as u64).to_le_bytes());
        self.0.write(bytes);
    }

    pub(crate) fn finish(&self) -> CacheKey {
        let (high, low) = self.0.finish128().as_u64();
        CacheKey([high, low])
    }
}

/// The part of clients to which a client belongs: everything that `private_by` names has equal values for all of them.
///
/// Equal values give equal partitions in every process.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Partition([u8; 32]);

impl Partition {
    /// Returns the partition of a client by the values of the claims and headers that `private_by` names, in the order
    /// of the configuration.
    ///
    /// `None` if there are no names, or if a value is missing: clients without an identity must not share private
    /// responses.
    pub fn of_values<'a>(
        values: impl IntoIterator<Item = (&'a str, Option<&'a [u8]>)>,
    ) -> Option<Self> {
        let mut hasher = Sha256::new();
        let mut is_empty = true;
        for (name, value) in values {
            let value = value?;
            is_empty = false;
            for part in [name.as_bytes(), value] {
                hasher.update((part.len() as u64).to_le_bytes());
                hasher.update(part);
            }
        }
        (!is_empty).then(|| Self(hasher.finalize().into()))
    }

    /// Returns the partition as bytes, which are equal only for equal values.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Partition {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Partition(…)")
    }
}

/// The common part of the keys of one fetch, from which the key of each representation is made by hashing the
/// representation only.
///
/// ```
/// use cache::{HashDomain, KeyBase, KeySecret, Partition};
///
/// let secret = KeySecret::from_bytes([0; 16]);
/// let mut base = KeyBase::new(&secret, HashDomain::Entity);
/// base.part(b"products");
/// base.part(b"... on Product { name price }");
/// base.headers([("accept-language", &b"en"[..])]);
/// let anonymous = base.clone().keys_of(br#"{"__typename":"Product","id":"1"}"#);
/// assert!(anonymous.private.is_none());
///
/// let alice = Partition::of_values([("sub", Some(&b"alice"[..]))]);
/// let keys = base.for_partition(alice).keys_of(br#"{"__typename":"Product","id":"1"}"#);
/// assert_eq!(keys.public, anonymous.public);
/// assert!(keys.private.is_some());
/// ```
#[derive(Clone)]
pub struct KeyBase {
    public: PartHasher,
    private: Option<PartHasher>,
    /// The parts as bytes, for [`SharedKey`].
    parts: Vec<u8>,
    partition: Option<Partition>,
}

/// The keys of one entry. Which of them is used depends on the scope of the response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryKeys {
    /// The key of a public response.
    pub public: CacheKey,
    /// The key of a private response. `None` if private responses of this request are not stored.
    pub private: Option<CacheKey>,
}

/// Makes the keys of one entry of this process from all of its parts. Allocates nothing and keeps no parts, so unlike a
/// [`KeyBase`] it cannot make a [`SharedKey`].
///
/// ```
/// use cache::{EntryKeyHasher, HashDomain, KeySecret};
///
/// let secret = KeySecret::from_bytes([0; 16]);
/// let mut hasher = EntryKeyHasher::new(&secret, HashDomain::Response);
/// hasher.part(b"operation");
/// let keys = hasher.finish(None);
/// assert!(keys.private.is_none());
/// ```
pub struct EntryKeyHasher(PartHasher);

impl EntryKeyHasher {
    /// Begins keys without parts.
    pub fn new(secret: &KeySecret, domain: HashDomain) -> Self {
        Self(PartHasher::new(secret, domain))
    }

    /// Adds a part. Parts of different entries of one domain must be different lists, and none may be the beginning of
    /// another: say how many follow where their number differs.
    pub fn part(&mut self, bytes: &[u8]) {
        self.0.part(bytes);
    }

    /// Returns the keys. The private one belongs to `partition`.
    pub fn finish(self, partition: Option<Partition>) -> EntryKeys {
        let private = partition.map(|Partition(digest)| {
            let mut private = self.0.clone();
            private.part(PRIVATE_MARK);
            private.part(&digest);
            private.finish()
        });
        EntryKeys { public: self.0.finish(), private }
    }
}

/// Begins the parts that only private keys have. Public keys end with one part after the base and private keys with
/// three, and all bases of a domain have the same parts, so the two cannot be equal.
const PRIVATE_MARK: &[u8] = b"private";

impl KeyBase {
    /// Begins a base without parts.
    pub fn new(secret: &KeySecret, domain: HashDomain) -> Self {
        let parts = vec![domain as u8];
        Self { public: PartHasher::new(secret, domain), private: None, parts, partition: None }
    }

    /// Adds a part: the namespace, the name of the subgraph, the selection, the graph's identity. All bases of one
    /// domain must have the same parts in the same order.
    pub fn part(&mut self, bytes: &[u8]) {
        debug_assert!(self.private.is_none(), "parts come before the partition");
        self.public.part(bytes);
        self.parts.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.parts.extend_from_slice(bytes);
    }

    /// Adds the headers that the subgraph gets, sorted by name, as one part.
    pub fn headers<'a>(&mut self, headers: impl IntoIterator<Item = (&'a str, &'a [u8])>) {
        let mut list = Vec::with_capacity(64);
        for (name, value) in headers {
            for part in [name.as_bytes(), value] {
                list.extend_from_slice(&(part.len() as u64).to_le_bytes());
                list.extend_from_slice(part);
            }
        }
        self.part(&list);
    }

    /// Also makes private keys, if there is a partition. No parts may follow.
    #[must_use]
    pub fn for_partition(mut self, partition: Option<Partition>) -> Self {
        self.partition = partition;
        self.private = partition.map(|Partition(digest)| {
            let mut private = self.public.clone();
            private.part(PRIVATE_MARK);
            private.part(&digest);
            private
        });
        self
    }

    /// Returns the keys of one representation, or of the arguments of root fields.
    pub fn keys_of(&self, representation: &[u8]) -> EntryKeys {
        let key_of = |base: &PartHasher| {
            let mut hasher = base.clone();
            hasher.part(representation);
            hasher.finish()
        };
        EntryKeys { public: key_of(&self.public), private: self.private.as_ref().map(key_of) }
    }

    /// Returns the hasher of keys in a store that several routers share.
    pub fn shared(&self) -> SharedKeyBase {
        let public = Sha256::new_with_prefix(&self.parts);
        let private = self.partition.map(|Partition(digest)| {
            let mut private = public.clone();
            shared_part(&mut private, PRIVATE_MARK);
            shared_part(&mut private, &digest);
            private
        });
        SharedKeyBase { public, private }
    }
}

/// The common part of the keys of one fetch in a store that several routers share.
#[derive(Clone)]
pub struct SharedKeyBase {
    public: Sha256,
    private: Option<Sha256>,
}

fn shared_part(hasher: &mut Sha256, bytes: &[u8]) {
    hasher.update((bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

impl SharedKeyBase {
    /// Returns the key of one representation, or of the arguments of root fields, for responses with this scope. `None`
    /// if private responses of this request are not stored.
    pub fn key_of(&self, representation: &[u8], scope: Scope) -> Option<SharedKey> {
        let base = match scope {
            Scope::Public => &self.public,
            Scope::Private => self.private.as_ref()?,
        };
        let mut hasher = base.clone();
        shared_part(&mut hasher, representation);
        Some(SharedKey(hasher.finalize().into()))
    }
}

impl std::fmt::Debug for SharedKeyBase {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SharedKeyBase").field("has_partition", &self.private.is_some()).finish()
    }
}

impl std::fmt::Debug for KeyBase {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("KeyBase").field("has_partition", &self.partition.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// A request of a random client, small enough that equal ones occur.
    #[derive(Clone, PartialEq, Eq, Hash, Debug)]
    struct Client {
        subgraph: String,
        selection: String,
        headers: Vec<(String, String)>,
        user: Option<String>,
        representation: String,
    }

    fn clients() -> impl Strategy<Value = Client> {
        let text = || "[ab]{0,2}";
        let headers = proptest::collection::btree_map(text(), text(), 0..3);
        (text(), text(), headers, proptest::option::of(text()), text()).prop_map(
            |(subgraph, selection, headers, user, representation)| Client {
                subgraph,
                selection,
                headers: headers.into_iter().collect(),
                user,
                representation,
            },
        )
    }

    fn base_of(client: &Client) -> KeyBase {
        let mut base = KeyBase::new(&KeySecret::from_bytes([3; 16]), HashDomain::Entity);
        base.part(client.subgraph.as_bytes());
        base.part(client.selection.as_bytes());
        base.headers(client.headers.iter().map(|(name, value)| (&**name, value.as_bytes())));
        let user = client.user.as_ref().map(String::as_bytes);
        base.for_partition(Partition::of_values([("sub", user)]))
    }

    proptest! {
        /// Two clients have the same key exactly if everything that a subgraph could tell apart is equal.
        #[test]
        fn nothing_crosses_between_clients(clients in proptest::collection::vec(clients(), 2..12)) {
            for left in &clients {
                for right in &clients {
                    let (ours, theirs) = (
                        base_of(left).keys_of(left.representation.as_bytes()),
                        base_of(right).keys_of(right.representation.as_bytes()),
                    );
                    let public = |it: &Client| Client { user: None, ..it.clone() };
                    let is_same_public = public(left) == public(right);
                    prop_assert_eq!(ours.public == theirs.public, is_same_public);
                    prop_assert_eq!(
                        ours.private.is_some() && ours.private == theirs.private,
                        is_same_public && left.user.is_some() && left.user == right.user
                    );
                    prop_assert!(ours.private != Some(theirs.public));
                    let shared = |it: &Client, scope| {
                        base_of(it).shared().key_of(it.representation.as_bytes(), scope)
                    };
                    let (public, private) = (Scope::Public, Scope::Private);
                    let ours = shared(left, private);
                    prop_assert_eq!(shared(left, public) == shared(right, public), is_same_public);
                    prop_assert_eq!(
                        ours.is_some() && ours == shared(right, private),
                        is_same_public && left.user.is_some() && left.user == right.user
                    );
                    prop_assert!(ours.is_none() || ours != shared(right, public));
                }
            }
        }
    }

    #[test]
    fn a_client_without_a_value_that_private_by_names_has_no_partition() {
        let (alice, tenant) = (Some(&b"alice"[..]), Some(&b"t"[..]));
        assert_eq!(Partition::of_values([]), None);
        assert_eq!(Partition::of_values([("sub", None)]), None);
        assert_eq!(Partition::of_values([("sub", alice), ("x-tenant", None)]), None);
        let both = Partition::of_values([("sub", alice), ("x-tenant", tenant)]);
        assert!(both.is_some());
        assert_ne!(both, Partition::of_values([("sub", tenant), ("x-tenant", alice)]));
    }

    #[test]
    fn domains_and_secrets_separate_keys() {
        let mut keys = HashSet::new();
        for domain in [HashDomain::Entity, HashDomain::RootFields, HashDomain::Response] {
            for secret in [[1; 16], [2; 16]] {
                let base = KeyBase::new(&KeySecret::from_bytes(secret), domain);
                keys.insert(base.keys_of(b"a").public);
            }
        }
        assert_eq!(keys.len(), 6);
    }

    #[test]
    fn secrets_and_partitions_are_not_printed() {
        let secret = KeySecret::from_bytes(*b"0123456789abcdef");
        let base = KeyBase::new(&secret, HashDomain::Entity)
            .for_partition(Partition::of_values([("sub", Some(&b"alice"[..]))]));
        let text = format!("{secret:?} {base:?} {:?}", base.partition);
        assert_eq!(text, "KeySecret(…) KeyBase { has_partition: true } Some(Partition(…))");
    }
}

//! A slab of connections: numbered places that are reused, with a generation that tells successive users apart.

use crate::chunk::Chunk;

/// The name of one connection of a reactor. A token is not reused within some four thousand million connections of the
/// same place, so that a message for a connection that has gone reaches no other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Token(u64);

impl Token {
    /// Returns the token as a number, for callers that store numbers; see [`Token::from_u64`].
    pub fn to_u64(self) -> u64 {
        self.0
    }

    /// Makes a token from such a number. Any number is allowed; one that names no connection finds none.
    pub fn from_u64(number: u64) -> Self {
        Self(number)
    }

    fn new(index: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(index))
    }

    /// Returns the place of the connection; neighbours in memory have neighbouring places. Another connection may use
    /// the place by now.
    pub fn place(self) -> u32 {
        // The low half fits.
        (self.0 & u64::from(u32::MAX)) as u32
    }

    fn index(self) -> usize {
        self.place() as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Values in numbered places, see the module. It grows by chunks rather than by doubling, so that no slot moves.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Chunk<Slot<T>>>,
    /// The free places, the last freed at the end: its memory is warm.
    free: Vec<u32>,
    len: usize,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    /// The size of one place in bytes.
    pub(crate) const PLACE_BYTES: usize = size_of::<Slot<T>>();

    /// The number of places in a chunk.
    const CHUNK: usize = Chunk::<Slot<T>>::CAPACITY;

    pub(crate) fn new() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), len: 0 }
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Inserts the value that `make` returns for its future token.
    pub(crate) fn insert_with<E>(
        &mut self,
        make: impl FnOnce(Token) -> Result<T, E>,
    ) -> Result<Token, E> {
        let index = match self.free.last() {
            Some(&index) => index,
            None => self.grow(),
        };
        let slot = self.slot_mut(index as usize);
        let Some(slot) = slot else { unreachable!("a free place is a place") };
        let token = Token::new(index, slot.generation);
        slot.value = Some(make(token)?);
        self.free.pop();
        self.len += 1;
        Ok(token)
    }

    pub(crate) fn get(&self, token: Token) -> Option<&T> {
        let index = token.index();
        let slot = self.chunks.get(index / Self::CHUNK)?.get(index % Self::CHUNK)?;
        slot.value.as_ref().filter(|_| slot.generation == token.generation())
    }

    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let slot = self.slot_mut(token.index())?;
        slot.value.as_mut().filter(|_| slot.generation == token.generation())
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<T> {
        let slot = self.slot_mut(token.index())?;
        if slot.generation != token.generation() {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(token.place());
        self.len -= 1;
        Some(value)
    }

    /// Returns the token of the connection that uses that place at present.
    pub(crate) fn token_at(&self, place: u32) -> Option<Token> {
        let index = place as usize;
        let slot = self.chunks.get(index / Self::CHUNK)?.get(index % Self::CHUNK)?;
        slot.value.is_some().then(|| Token::new(place, slot.generation))
    }

    /// Returns the tokens of all values, in arbitrary order.
    pub(crate) fn tokens(&self) -> Vec<Token> {
        let slots = self.chunks.iter().flat_map(|chunk| chunk.iter()).zip(0..);
        let taken = slots.filter(|(slot, _)| slot.value.is_some());
        taken.map(|(slot, index)| Token::new(index, slot.generation)).collect()
    }

    /// Adds one place and records it as free.
    fn grow(&mut self) -> u32 {
        if self.chunks.last().is_none_or(Chunk::is_full) {
            self.chunks.push(Chunk::new());
        }
        let before = (self.chunks.len() - 1) * Self::CHUNK;
        let Some(chunk) = self.chunks.last_mut() else { unreachable!("one was just put there") };
        let index = (before + chunk.len()) as u32;
        chunk.push(Slot { generation: 0, value: None });
        self.free.push(index);
        index
    }

    fn slot_mut(&mut self, index: usize) -> Option<&mut Slot<T>> {
        self.chunks.get_mut(index / Self::CHUNK)?.get_mut(index % Self::CHUNK)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn insert(slab: &mut Slab<char>, value: char) -> Token {
        let inserted = slab.insert_with(|_| Ok::<_, Infallible>(value));
        inserted.unwrap_or_else(|never| match never {})
    }

    #[test]
    fn a_reused_place_has_another_token() {
        let mut slab = Slab::new();
        let first = insert(&mut slab, 'a');
        assert_eq!(slab.remove(first), Some('a'));
        let second = insert(&mut slab, 'b');
        assert_ne!(first, second);
        assert_eq!((slab.get(first), slab.get(second)), (None, Some(&'b')));
        assert_eq!((slab.remove(first), slab.len()), (None, 1));
        assert_eq!((first.place(), slab.token_at(second.place())), (second.place(), Some(second)));
        assert_eq!((slab.remove(second), slab.token_at(second.place())), (Some('b'), None));
    }

    #[test]
    fn a_value_that_is_not_made_takes_no_place() {
        let mut slab = Slab::<char>::new();
        assert_eq!(slab.insert_with(|_| Err("no")), Err("no"));
        let token = insert(&mut slab, 'a');
        assert_eq!((slab.len(), token.to_u64(), slab.tokens()), (1, 0, vec![token]));
    }

    #[test]
    fn a_slab_grows_beyond_a_chunk_and_finds_each_value() {
        // Large values, so that a chunk has few.
        let (mut slab, value) = (Slab::new(), [7_u8; 10_000]);
        let mut insert = || {
            let inserted = slab.insert_with(|_| Ok::<_, Infallible>(value));
            inserted.unwrap_or_else(|never| match never {})
        };
        let tokens: Vec<Token> = (0..3 * Slab::<[u8; 10_000]>::CHUNK).map(|_| insert()).collect();
        assert!(tokens.iter().all(|token| slab.get(*token) == Some(&value)));
        assert_eq!(slab.tokens(), tokens);
        assert_eq!(slab.get(Token::from_u64(u64::MAX)), None);
    }
}

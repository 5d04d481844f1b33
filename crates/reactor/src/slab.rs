//! Where connections live: entries that are numbered, used again, and told apart by a generation.

/// Names one connection of a reactor. Never used twice within some four thousand million connections that had the
/// same place, so that a message for a connection that has gone finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Token(u64);

impl Token {
    /// As a number, for those who keep numbers; see [`Token::from_u64`].
    pub fn to_u64(self) -> u64 {
        self.0
    }

    /// From such a number. Any number is fine: one that names nothing finds nothing.
    pub fn from_u64(number: u64) -> Self {
        Self(number)
    }

    fn new(index: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(index))
    }

    /// Where its connection is, without saying which: another may have the place by now.
    pub(crate) fn place(self) -> u32 {
        // The low half: it fits.
        (self.0 & u64::from(u32::MAX)) as u32
    }

    fn index(self) -> usize {
        self.place() as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Bytes of a chunk. The slab grows by chunks and not by doubling, so that no entry moves and at most one chunk is
/// spare. A size that the allocator gives without rounding up: chunks by a round number of entries had a fifth of
/// their memory for nothing.
const CHUNK_BYTES: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Vec<Entry<T>>>,
    /// Places to use again, the last freed first: its memory is warm.
    free: Vec<u32>,
    len: usize,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    /// What one place takes.
    pub(crate) const PLACE_BYTES: usize = size_of::<Entry<T>>();

    /// Places in a chunk.
    const CHUNK: usize = CHUNK_BYTES / Self::PLACE_BYTES;

    pub(crate) fn new() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), len: 0 }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Puts in what `make` gives for the token that it will have.
    pub(crate) fn insert_with<E>(
        &mut self,
        make: impl FnOnce(Token) -> Result<T, E>,
    ) -> Result<Token, E> {
        let index = match self.free.last() {
            Some(&index) => index,
            None => self.grow(),
        };
        let entry = self.entry_mut(index as usize);
        let Some(entry) = entry else { unreachable!("a free place is a place") };
        let token = Token::new(index, entry.generation);
        entry.value = Some(make(token)?);
        self.free.pop();
        self.len += 1;
        Ok(token)
    }

    pub(crate) fn get(&self, token: Token) -> Option<&T> {
        let index = token.index();
        let entry = self.chunks.get(index / Self::CHUNK)?.get(index % Self::CHUNK)?;
        entry.value.as_ref().filter(|_| entry.generation == token.generation())
    }

    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let entry = self.entry_mut(token.index())?;
        entry.value.as_mut().filter(|_| entry.generation == token.generation())
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<T> {
        let entry = self.entry_mut(token.index())?;
        if entry.generation != token.generation() {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(token.place());
        self.len -= 1;
        Some(value)
    }

    /// Who has that place at present.
    pub(crate) fn token_at(&self, place: u32) -> Option<Token> {
        let index = place as usize;
        let entry = self.chunks.get(index / Self::CHUNK)?.get(index % Self::CHUNK)?;
        entry.value.is_some().then(|| Token::new(place, entry.generation))
    }

    /// The tokens of all, in no order that means anything.
    pub(crate) fn tokens(&self) -> Vec<Token> {
        let entries = self.chunks.iter().flatten().zip(0..);
        let taken = entries.filter(|(entry, _)| entry.value.is_some());
        taken.map(|(entry, index)| Token::new(index, entry.generation)).collect()
    }

    /// One more place, told as free.
    fn grow(&mut self) -> u32 {
        if self.chunks.last().is_none_or(|chunk| chunk.len() == Self::CHUNK) {
            self.chunks.push(Vec::with_capacity(Self::CHUNK));
        }
        let before = (self.chunks.len() - 1) * Self::CHUNK;
        let Some(chunk) = self.chunks.last_mut() else { unreachable!("one was just put there") };
        let index = (before + chunk.len()) as u32;
        chunk.push(Entry { generation: 0, value: None });
        self.free.push(index);
        index
    }

    fn entry_mut(&mut self, index: usize) -> Option<&mut Entry<T>> {
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
    fn a_place_that_is_used_again_has_another_token() {
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
    fn it_grows_beyond_a_chunk_and_finds_each() {
        let mut slab = Slab::new();
        let tokens: Vec<Token> =
            (0..3 * Slab::<char>::CHUNK).map(|_| insert(&mut slab, 'x')).collect();
        assert!(tokens.iter().all(|token| slab.get(*token) == Some(&'x')));
        assert_eq!(slab.tokens(), tokens);
        assert_eq!(slab.get(Token::from_u64(u64::MAX)), None);
    }
}

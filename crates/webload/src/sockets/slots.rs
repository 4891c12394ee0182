//! Connections by number, and tokens that a later connection under the same number does not answer to.

/// What epoll and timers know a connection by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Token(pub u64);

impl Token {
    fn new(slot: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(slot))
    }

    fn slot(self) -> usize {
        self.0 as u32 as usize
    }
}

/// Never the token of a connection: generations do not get that far.
pub(crate) const LISTENER: Token = Token(u64::MAX);

pub(crate) struct Slots<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    pub fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn insert(&mut self, value: T) -> Token {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let (generation, place) = &mut self.slots[slot as usize];
        *place = Some(value);
        Token::new(slot, *generation)
    }

    #[inline]
    pub fn of(&mut self, token: Token) -> Option<&mut T> {
        let (generation, value) = self.slots.get_mut(token.slot())?;
        value.as_mut().filter(|_| Token::new(token.slot() as u32, *generation) == token)
    }

    pub fn remove(&mut self, token: Token) -> Option<T> {
        self.of(token)?;
        let (generation, value) = &mut self.slots[token.slot()];
        *generation = (*generation + 1) & 0x7fff_ffff;
        self.free.push(token.slot() as u32);
        value.take()
    }

    /// All tokens in use.
    pub fn tokens(&self) -> Vec<Token> {
        let used = self.slots.iter().enumerate().filter(|(_, (_, value))| value.is_some());
        used.map(|(slot, (generation, _))| Token::new(slot as u32, *generation)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_token_does_not_reach_the_next_one_in_its_slot() {
        let mut slots = Slots::new();
        let first = slots.insert('a');
        assert_eq!(slots.remove(first), Some('a'));
        let second = slots.insert('b');
        assert_eq!(slots.of(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.of(second), Some(&mut 'b'));
        assert_eq!((slots.len(), slots.tokens()), (1, vec![second]));
        assert_eq!(slots.of(LISTENER), None);
    }
}

//! Attributes of communicators, windows and datatypes (MPI-5.0, section 7.7).
//!
//! A program's functions are called by whoever uses this module: they may call MPI themselves. So nothing is
//! borrowed meanwhile: what is to be called is told first (`begin_…`, `to_copy`), and its effect noted after.

/// A keyval's number.
pub type Key = u32;

/// What of it is shared by all attributes: `F` are its functions and their extra state.
#[derive(Debug)]
struct Keyval<F> {
    functions: F,
    /// The program has freed it: nothing new gets it.
    freed: bool,
    /// Attributes that have it.
    uses: usize,
}

/// All keyvals of one kind of object.
#[derive(Debug)]
pub struct Keyvals<F> {
    slots: Vec<Option<Keyval<F>>>,
}

impl<F> Default for Keyvals<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F> Keyvals<F> {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self { slots: vec![] }
    }
}

impl<F: Copy> Keyvals<F> {
    /// `MPI_Comm_create_keyval` and its like.
    pub fn create(&mut self, functions: F) -> Key {
        let keyval = Some(Keyval { functions, freed: false, uses: 0 });
        match self.slots.iter().position(Option::is_none) {
            Some(free) => {
                self.slots[free] = keyval;
                free as Key
            }
            None => {
                self.slots.push(keyval);
                self.slots.len() as Key - 1
            }
        }
    }

    /// `MPI_Comm_free_keyval` and its like: it is gone when the last attribute that has it is. Whether there
    /// was one.
    pub fn free(&mut self, key: Key) -> bool {
        match self.slots.get_mut(key as usize).and_then(Option::as_mut).filter(|keyval| !keyval.freed) {
            Some(keyval) => {
                keyval.freed = true;
                self.clear(key);
                true
            }
            None => false,
        }
    }

    fn clear(&mut self, key: Key) {
        let slot = &mut self.slots[key as usize];
        if slot.as_ref().is_some_and(|keyval| keyval.freed && keyval.uses == 0) {
            *slot = None;
        }
    }

    /// Its functions, if a program may use it.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<F> {
        self.slots.get(key as usize)?.as_ref().filter(|keyval| !keyval.freed).map(|keyval| keyval.functions)
    }

    /// Its functions, though it may have been freed.
    fn of(&self, key: Key) -> Option<F> {
        self.slots.get(key as usize)?.as_ref().map(|keyval| keyval.functions)
    }

    fn count(&mut self, key: Key, more: bool) {
        if let Some(keyval) = self.slots.get_mut(key as usize).and_then(Option::as_mut) {
            keyval.uses = if more { keyval.uses + 1 } else { keyval.uses.saturating_sub(1) };
            self.clear(key);
        }
    }
}

/// An attribute: its keyval, the functions of that, and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute<F> {
    /// Its keyval.
    pub key: Key,
    /// The functions of that.
    pub functions: F,
    /// Its value: an address, or a number of that size.
    pub value: usize,
}

/// The attributes of one object, in the order in which they were set.
#[derive(Debug, Default)]
pub struct Attributes(Vec<(Key, usize)>);

impl Attributes {
    /// `MPI_Comm_get_attr` and its like.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<usize> {
        self.0.iter().find(|(other, _)| *other == key).map(|(_, value)| *value)
    }

    /// The attribute of this keyval, whose function for deletion is to be called before it is replaced or
    /// [`remove`](Self::remove)d.
    #[must_use]
    pub fn find<F: Copy>(&self, key: Key, keyvals: &Keyvals<F>) -> Option<Attribute<F>> {
        Some(Attribute { key, functions: keyvals.of(key)?, value: self.get(key)? })
    }

    /// Sets an attribute, after the old one's function was called.
    pub fn set<F: Copy>(&mut self, key: Key, value: usize, keyvals: &mut Keyvals<F>) {
        match self.0.iter_mut().find(|(other, _)| *other == key) {
            Some((_, old)) => *old = value,
            None => {
                self.0.push((key, value));
                keyvals.count(key, true);
            }
        }
    }

    /// Removes an attribute, after its function was called.
    pub fn remove<F: Copy>(&mut self, key: Key, keyvals: &mut Keyvals<F>) {
        if let Some(at) = self.0.iter().position(|(other, _)| *other == key) {
            self.0.remove(at);
            keyvals.count(key, false);
        }
    }

    /// Those whose functions are called when the object is copied, in the order in which they were set.
    #[must_use]
    pub fn to_copy<F: Copy>(&self, keyvals: &Keyvals<F>) -> Vec<Attribute<F>> {
        self.0
            .iter()
            .filter_map(|&(key, value)| Some(Attribute { key, functions: keyvals.of(key)?, value }))
            .collect()
    }

    /// The next whose function is called, and which is then removed, when the object is freed: the last
    /// first, as the standard has it for `MPI_COMM_SELF` at the end, and libraries everywhere.
    #[must_use]
    pub fn last<F: Copy>(&self, keyvals: &Keyvals<F>) -> Option<Attribute<F>> {
        let &(key, value) = self.0.last()?;
        Some(Attribute { key, functions: keyvals.of(key)?, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_keyval_lives_as_long_as_its_attributes() {
        let mut keyvals = Keyvals::default();
        let mut object = Attributes::default();
        let (a, b) = (keyvals.create('a'), keyvals.create('b'));
        object.set(a, 1, &mut keyvals);
        object.set(b, 2, &mut keyvals);
        object.set(a, 3, &mut keyvals);
        assert!(keyvals.free(a) && !keyvals.free(a));
        assert_eq!((keyvals.get(a), keyvals.get(b)), (None, Some('b')));
        // It can still be deleted, and copied.
        assert_eq!(object.find(a, &keyvals), Some(Attribute { key: a, functions: 'a', value: 3 }));
        let copied = object.to_copy(&keyvals);
        assert_eq!(copied.iter().map(|one| one.functions).collect::<String>(), "ab");
        let c = keyvals.create('c');
        assert_ne!(c, a);
        object.remove(a, &mut keyvals);
        assert_eq!((object.get(a), keyvals.create('d')), (None, a));
    }

    #[test]
    fn the_last_goes_first() {
        let mut keyvals = Keyvals::default();
        let mut object = Attributes::default();
        for name in ['a', 'b', 'c'] {
            let key = keyvals.create(name);
            object.set(key, 0, &mut keyvals);
            keyvals.free(key);
        }
        let mut order = String::new();
        while let Some(one) = object.last(&keyvals) {
            order.push(one.functions);
            object.remove(one.key, &mut keyvals);
        }
        assert_eq!(order, "cba");
        assert!(keyvals.slots.iter().all(Option::is_none));
    }
}

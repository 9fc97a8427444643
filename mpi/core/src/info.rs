//! Info objects (MPI-5.0, chapter 10): keys and values, in the order in which the keys were first set.

use crate::error::Class;

/// The most bytes of keys and values, without the end of a C string. They differ from ABI to ABI.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// `MPI_MAX_INFO_KEY - 1`.
    pub key: usize,
    /// `MPI_MAX_INFO_VAL - 1`.
    pub value: usize,
}

/// An info. Keys and values are bytes: nothing says that they are text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Info(Vec<(Vec<u8>, Vec<u8>)>);

impl Info {
    /// `MPI_Info_set`.
    ///
    /// # Errors
    /// The key is empty or too long, or the value too long.
    pub fn set(&mut self, key: &[u8], value: &[u8], limits: Limits) -> Result<(), Class> {
        check(key, limits)?;
        if value.len() > limits.value {
            return Err(Class::InfoValue);
        }
        self.put(key, value);
        Ok(())
    }

    /// Sets each key of another one. Keys that only this one has stay as they are.
    pub fn set_all(&mut self, from: &Self) {
        from.0.iter().for_each(|(key, value)| self.put(key, value));
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        match self.0.iter_mut().find(|(other, _)| other == key) {
            Some((_, old)) => *old = value.into(),
            None => self.0.push((key.into(), value.into())),
        }
    }

    /// `MPI_Info_get_string` and its like; `None` if there is no such key.
    ///
    /// # Errors
    /// The key is empty or too long.
    pub fn get(&self, key: &[u8], limits: Limits) -> Result<Option<&[u8]>, Class> {
        check(key, limits)?;
        Ok(self.0.iter().find(|(other, _)| other == key).map(|(_, value)| &**value))
    }

    /// `MPI_Info_delete`.
    ///
    /// # Errors
    /// There is no such key, or it is empty or too long.
    pub fn delete(&mut self, key: &[u8], limits: Limits) -> Result<(), Class> {
        check(key, limits)?;
        let at = self.0.iter().position(|(other, _)| other == key).ok_or(Class::InfoNoKey)?;
        self.0.remove(at);
        Ok(())
    }

    /// `MPI_Info_get_nkeys`.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `MPI_Info_get_nthkey`.
    #[must_use]
    pub fn nth(&self, n: usize) -> Option<&[u8]> {
        self.0.get(n).map(|(key, _)| &**key)
    }
}

fn check(key: &[u8], limits: Limits) -> Result<(), Class> {
    if key.is_empty() || key.len() > limits.key { Err(Class::InfoKey) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { key: 5, value: 3 };

    #[test]
    fn keys_keep_their_order() {
        let mut info = Info::default();
        for (key, value) in [("b", "1"), ("a", "2"), ("c", ""), ("b", "3")] {
            info.set(key.as_bytes(), value.as_bytes(), LIMITS).expect("short");
        }
        let keys: Vec<_> = (0..info.len()).filter_map(|n| info.nth(n)).collect();
        assert_eq!(keys, [b"b", b"a", b"c"]);
        assert_eq!(info.get(b"b", LIMITS), Ok(Some(&b"3"[..])));
        info.delete(b"a", LIMITS).expect("there");
        assert_eq!((info.nth(1), info.nth(2)), (Some(&b"c"[..]), None));
        assert_eq!(info.delete(b"a", LIMITS), Err(Class::InfoNoKey));
        assert_eq!(info.get(b"a", LIMITS), Ok(None));
    }

    #[test]
    fn keys_of_another_one_are_set_and_the_others_stay() {
        let of = |pairs: &[(&str, &str)]| {
            let mut info = Info::default();
            for (key, value) in pairs {
                info.set(key.as_bytes(), value.as_bytes(), LIMITS).expect("short");
            }
            info
        };
        let mut info = of(&[("a", "1"), ("b", "2")]);
        info.set_all(&of(&[("c", "3"), ("b", "4")]));
        assert_eq!(info, of(&[("a", "1"), ("b", "4"), ("c", "3")]));
        info.set_all(&Info::default());
        assert_eq!(info.len(), 3);
    }

    #[test]
    fn what_is_too_long_is_refused() {
        let mut info = Info::default();
        assert_eq!(info.set(b"", b"1", LIMITS), Err(Class::InfoKey));
        assert_eq!(info.set(b"abcdef", b"1", LIMITS), Err(Class::InfoKey));
        assert_eq!(info.set(b"abcde", b"1234", LIMITS), Err(Class::InfoValue));
        assert!(info.is_empty() && info.get(b"abcdef", LIMITS) == Err(Class::InfoKey));
    }
}

//! What a program has made, by handle.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::handle::{Handle, MADE};

/// Objects of one kind. Places are used again.
#[derive(Debug)]
pub struct Slab<T>(Mutex<Places<T>>);

#[derive(Debug)]
struct Places<T> {
    objects: Vec<Option<Arc<T>>>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    /// Nothing.
    pub const fn new() -> Self {
        Self(Mutex::new(Places { objects: vec![], free: vec![] }))
    }

    fn lock(&self) -> MutexGuard<'_, Places<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new object's handle.
    pub fn add<H: Handle>(&self, object: Arc<T>) -> H {
        let mut places = self.lock();
        let place = match places.free.pop() {
            Some(place) => {
                places.objects[place] = Some(object);
                place
            }
            None => {
                places.objects.push(Some(object));
                places.objects.len() - 1
            }
        };
        H::new(MADE + place as u64)
    }

    /// The object of a handle, if there is one.
    pub fn get<H: Handle>(&self, handle: H) -> Option<Arc<T>> {
        let place = handle.value().checked_sub(MADE)?;
        self.lock().objects.get(place as usize)?.clone()
    }

    /// Those that are there.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.lock().objects.iter().flatten().cloned().collect()
    }

    /// The handle of the first that is such.
    pub fn find<H: Handle>(&self, is_it: impl Fn(&T) -> bool) -> Option<H> {
        let is_it = |object: &Option<Arc<T>>| object.as_deref().is_some_and(&is_it);
        let place = self.lock().objects.iter().position(is_it)?;
        Some(H::new(MADE + place as u64))
    }

    /// Takes an object away, if there is one.
    pub fn take<H: Handle>(&self, handle: H) -> Option<Arc<T>> {
        let place = handle.value().checked_sub(MADE)? as usize;
        let mut places = self.lock();
        let object = places.objects.get_mut(place)?.take()?;
        places.free.push(place);
        Some(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::Info;

    #[test]
    fn a_place_is_used_again() {
        let slab = Slab::new();
        let a: Info = slab.add(Arc::new('a'));
        let b: Info = slab.add(Arc::new('b'));
        assert_eq!(slab.take(a).as_deref(), Some(&'a'));
        assert_eq!((slab.get(a), slab.take(a)), (None, None));
        let c: Info = slab.add(Arc::new('c'));
        assert_eq!((c, slab.get(b).as_deref(), slab.get(c).as_deref()), (a, Some(&'b'), Some(&'c')));
        assert_eq!(slab.all(), [Arc::new('c'), Arc::new('b')]);
        assert_eq!((slab.get(Info::NULL), slab.get(Info(u64::MAX))), (None, None));
    }
}

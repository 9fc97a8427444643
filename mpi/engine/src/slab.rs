//! What a program has made, by handle.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::handle::{Handle, MADE};

/// Objects of one kind. Places are used again. A clone has the same ones.
#[derive(Debug)]
pub struct Slab<T>(OnceLock<Arc<Mutex<Places<T>>>>);

impl<T> Clone for Slab<T> {
    fn clone(&self) -> Self {
        Self(OnceLock::from(self.places().clone()))
    }
}

#[derive(Debug)]
struct Places<T> {
    objects: Vec<Option<Arc<T>>>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    /// Nothing.
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    fn places(&self) -> &Arc<Mutex<Places<T>>> {
        self.0.get_or_init(|| Arc::new(Mutex::new(Places { objects: vec![], free: vec![] })))
    }

    fn lock(&self) -> MutexGuard<'_, Places<T>> {
        self.places().lock().unwrap_or_else(PoisonError::into_inner)
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

    /// A handle of what is still to be.
    pub fn reserve<H: Handle>(&self) -> H {
        let mut places = self.lock();
        places.objects.push(None);
        H::new(MADE + places.objects.len() as u64 - 1)
    }

    /// What that is now.
    pub fn fill<H: Handle>(&self, handle: H, object: Arc<T>) {
        let place = (handle.value() - MADE) as usize;
        self.lock().objects[place] = Some(object);
    }

    /// The object of a handle, if there is one.
    pub fn get<H: Handle>(&self, handle: H) -> Option<Arc<T>> {
        let place = handle.value().checked_sub(MADE)?;
        self.lock().objects.get(place as usize)?.clone()
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
        let later: Info = slab.reserve();
        assert_eq!((slab.get(later), slab.take(later)), (None, None));
        slab.clone().fill(later, Arc::new('d'));
        assert_eq!(slab.take(later).as_deref(), Some(&'d'));
        assert_eq!((slab.get(Info::NULL), slab.get(Info(u64::MAX))), (None, None));
    }
}

//! Locks with a rank: debug builds check that a thread takes nested locks in the order of [`LockRank`].

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use parking_lot::{Mutex, MutexGuard};

/// The position of a lock in the nesting order: while a thread holds one, it may only take locks of higher ranks. The module
/// that owns the outermost lock lists them.
///
/// Locks without a rank come below all of these; a `Stop` locks its children, parent before child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockRank(pub u8);

thread_local!(static HELD: RefCell<Vec<LockRank>> = const { RefCell::new(Vec::new()) });

/// A mutex with a rank.
#[derive(Debug)]
pub struct RankedMutex<T>(LockRank, Mutex<T>);

impl<T> RankedMutex<T> {
    /// Creates a mutex.
    pub const fn new(rank: LockRank, value: T) -> Self {
        Self(rank, Mutex::new(value))
    }

    /// Locks the mutex. In debug builds, panics if this thread holds a lock of this rank or a higher one.
    #[track_caller]
    pub fn lock(&self) -> RankedGuard<'_, T> {
        if cfg!(debug_assertions) {
            let innermost = HELD.with_borrow(|held| held.iter().max().copied());
            assert!(innermost < Some(self.0), "{:?} locked while {innermost:?} is held: see `LockRank`", self.0);
            HELD.with_borrow_mut(|held| held.push(self.0));
        }
        RankedGuard(self.1.lock(), self.0)
    }
}

/// Guard of a [`RankedMutex`].
pub struct RankedGuard<'a, T>(MutexGuard<'a, T>, LockRank);

impl<T> Drop for RankedGuard<'_, T> {
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            // Thread-local storage is gone at the end of a thread.
            let _ = HELD.try_with(|held| held.borrow_mut().retain(|rank| *rank != self.1));
        }
    }
}

impl<T> Deref for RankedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for RankedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn locks_nest_in_one_order_only() {
        let (outer, inner) = (RankedMutex::new(LockRank(0), 0), RankedMutex::new(LockRank(1), 0));
        for _ in 0..2 {
            let (mut one, mut other) = (outer.lock(), inner.lock());
            (*one, *other) = (*one + 1, *other + 1);
            // Regardless of the order in which they are released.
            drop(one);
            drop(other);
        }
        let wrong = catch_unwind(AssertUnwindSafe(|| {
            let _inner = inner.lock();
            let _outer = outer.lock();
        }));
        assert!(wrong.is_err(), "the wrong order passes");
        assert!(catch_unwind(AssertUnwindSafe(|| (inner.lock(), inner.lock()))).is_err(), "a lock taken twice passes");
        assert_eq!((*outer.lock(), *inner.lock()), (2, 2), "the failures left nothing held");
    }
}

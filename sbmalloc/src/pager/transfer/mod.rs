//! What all moves of memory to scratch and back have in common.
//!
//! | file | question it answers |
//! |---|---|
//! | `table` | where is a page that is out, and is what lies on scratch still what it holds |
//! | `slots` | where is what leaves next written |
//! | `pump` | which transfers are under way, and did they succeed |

pub(super) mod pump;
pub(super) mod slots;
pub(super) mod table;

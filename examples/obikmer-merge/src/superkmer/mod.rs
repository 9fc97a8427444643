//! Super-k-mers on their way: cut out of sequences, gathered in a window, routed to their partition, stored
//! there.

pub mod cut;
pub mod frequent;
pub mod route;
pub mod store;
pub mod stretches;
pub mod window;

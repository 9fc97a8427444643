//! No tracking: what is present is compared with the checksum of what was last written.

use super::Tracker;

/// Calls everything dirty; the checksums decide.
pub(super) struct Hash;

impl Tracker for Hash {}

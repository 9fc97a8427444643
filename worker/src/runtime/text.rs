//! Text made where nothing may be allocated.

use std::fmt::Write;

/// Text made without allocating; what does not fit is cut.
pub(super) struct FixedText {
    bytes: [u8; 512],
    used: usize,
}

impl Default for FixedText {
    fn default() -> Self {
        Self { bytes: [0; 512], used: 0 }
    }
}

impl FixedText {
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.used]).unwrap_or_default()
    }
}

impl Write for FixedText {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let mut cut = text.len().min(self.bytes.len() - self.used);
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        self.bytes[self.used..self.used + cut].copy_from_slice(&text.as_bytes()[..cut]);
        self.used += cut;
        Ok(())
    }
}

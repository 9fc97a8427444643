//! Bytes, rates and durations as people read them: the one place that formats them.

use std::fmt;

/// Bytes in the largest unit that leaves at least 1, powers of 1024: `512 B`, `3.0 MiB`, `1.25 GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return f.pad(&format!("{} B", self.0));
        }
        #[expect(clippy::cast_precision_loss, reason = "shown with four digits")]
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        // 1023.95 would print as "1024.0": the next unit says it better.
        while value >= 1023.95 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        // From GiB on the second digit is tens of megabytes and matters.
        let digits = if unit >= 2 && value < 10.0 { 2 } else { 1 };
        f.pad(&format!("{value:.digits$} {}", UNITS[unit]))
    }
}

/// A number of seconds: `0.004 s`, `3.2 s`, `4m07s`, `2h05m`, `3d04h`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span(pub f64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.max(0.0);
        if seconds == 0.0 {
            return f.pad("0 s");
        }
        if seconds < 0.1 {
            return f.pad(&format!("{seconds:.3} s"));
        }
        if seconds < 59.95 {
            return f.pad(&format!("{seconds:.1} s"));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clipped at 0 above; a float beyond u64 saturates"
        )]
        let whole = seconds.round() as u64;
        let (minutes, hours, days) = (whole / 60, whole / 3600, whole / 86_400);
        f.pad(&if hours == 0 {
            format!("{minutes}m{:02}s", whole % 60)
        } else if days == 0 {
            format!("{hours}h{:02}m", minutes % 60)
        } else {
            format!("{days}d{:02}h", hours % 24)
        })
    }
}

/// A large count with thousands set apart: `12,345,678`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count(pub u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::with_capacity(digits.len() * 4 / 3);
        for (at, digit) in digits.char_indices() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (3 << 20, "3.0 MiB"),
            (734_003_200, "700.0 MiB"),
            ((1 << 30) - 1, "1.00 GiB"),
            (5 << 28, "1.25 GiB"),
            (20 << 30, "20.0 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        assert_eq!(format!("{:>9}", Bytes(1024)), "  1.0 KiB");
    }

    #[test]
    fn spans() {
        for (seconds, text) in [
            (0.0, "0 s"),
            (0.004, "0.004 s"),
            (3.21, "3.2 s"),
            (59.96, "1m00s"),
            (247.0, "4m07s"),
            (7_500.0, "2h05m"),
            (273_600.0, "3d04h"),
        ] {
            assert_eq!(Span(seconds).to_string(), text);
        }
    }

    #[test]
    fn counts() {
        assert_eq!(Count(0).to_string(), "0");
        assert_eq!(Count(999).to_string(), "999");
        assert_eq!(Count(131_238_411).to_string(), "131,238,411");
    }
}

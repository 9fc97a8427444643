//! From the texts of options to their values.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use super::{EnvSetting, MAX_RANKS, Memory};

/// Reads a size: a number, possibly with a fraction, and B, K, M, G or T (also KB, KiB, …), powers of 1024.
///
/// # Errors
/// A sentence saying what a size looks like.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size such as 4096, 700M or 1.5GiB");
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let unit = unit.trim_start().to_ascii_lowercase();
    let shift = match unit.strip_suffix("ib").or(unit.strip_suffix('b')).unwrap_or(&unit) {
        // "ib" alone is no unit.
        "" if unit != "ib" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        _ => return Err(wrong()),
    };
    let bytes = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(1 << shift).ok_or_else(|| format!("'{text}' is more than 16 EiB"))?,
        Err(_) => scale(number.parse().map_err(|_| wrong())?, shift).ok_or_else(wrong)?,
    };
    if bytes == 0 { Err(format!("'{text}' is no memory at all")) } else { Ok(bytes) }
}

/// `number` × 2^`shift`, rounded, if that is a number of bytes.
fn scale(number: f64, shift: u32) -> Option<u64> {
    let bytes = (number * f64::from(shift).exp2()).round();
    // 2^64 as the first value that does not fit.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in range")]
    (bytes.is_finite() && (0.0..18_446_744_073_709_551_616.0).contains(&bytes)).then_some(bytes as u64)
}

/// Reads `--memory`: a size, a share of what is available, or `auto`.
pub(super) fn parse_memory(text: &str) -> Result<Memory, String> {
    if text.trim() == "auto" {
        return Ok(Memory::Auto);
    }
    let Some(number) = text.trim().strip_suffix('%') else {
        return parse_size(text).map(Memory::Bytes);
    };
    match number.trim_end().parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Memory::Share(percent / 100.0)),
        _ => Err(format!("'{text}' is not a percentage above 0 and up to 100")),
    }
}

/// Reads a number from 1 on.
pub(super) fn parse_count(text: &str) -> Result<u32, String> {
    number(text, u32::MAX.into(), "").and_then(|number| u32::try_from(number).map_err(|e| e.to_string()))
}

/// Reads a number from 0 on.
pub(super) fn parse_times(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(times) => Ok(times),
        Err(error) if *error.kind() == std::num::IntErrorKind::PosOverflow => {
            Err(format!("it is more than {}", u32::MAX))
        }
        Err(_) => Err("it must be a whole number, 0 or more".into()),
    }
}

/// Reads a number of ranks.
pub(super) fn parse_ranks(text: &str) -> Result<u32, String> {
    let ranks = number(text, MAX_RANKS.into(), ", the most ranks that a job may have");
    ranks.and_then(|number| u32::try_from(number).map_err(|e| e.to_string()))
}

/// Reads a number of milliseconds.
pub(super) fn parse_milliseconds(text: &str) -> Result<u64, String> {
    number(text, u64::MAX, "")
}

fn number(text: &str, most: u64, why: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        Ok(0) => Err("it must be 1 or more".into()),
        Ok(_) => Err(format!("it is more than {most}{why}")),
        Err(error) if *error.kind() == std::num::IntErrorKind::PosOverflow => {
            Err(format!("it is more than {most}{why}"))
        }
        Err(_) => Err("it must be a whole number, 1 or more".into()),
    }
}

/// Reads a fraction in (0, 1].
pub(super) fn parse_fraction(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(fraction) if fraction > 0.0 && fraction <= 1.0 => Ok(fraction),
        _ => Err(format!("'{text}' is not a fraction above 0 and up to 1")),
    }
}

/// Reads a duration above 0: seconds, or parts with d, h, m, s or ms.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a time such as 90, 2.5 or 1h30m");
    let mut total = 0.0;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, behind) = rest.split_at(digits);
        let letters = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (unit, next) = behind.split_at(letters);
        let seconds = match unit {
            "d" => 86_400.0,
            "h" => 3_600.0,
            "m" | "min" => 60.0,
            "s" | "" => 1.0,
            "ms" => 0.001,
            _ => return Err(wrong()),
        };
        total += number.parse::<f64>().map_err(|_| wrong())? * seconds;
        rest = next;
    }
    match Duration::try_from_secs_f64(total) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(wrong()),
    }
}

/// Reads `NAME` or `NAME=VALUE`; the value may be anything, also not UTF-8.
pub(super) fn parse_env(text: &OsStr) -> Result<EnvSetting, String> {
    let bytes = text.as_bytes();
    let (name, value) = match bytes.iter().position(|&byte| byte == b'=') {
        Some(at) => (&bytes[..at], Some(OsStr::from_bytes(&bytes[at + 1..]).to_owned())),
        None => (bytes, None),
    };
    if name.is_empty() {
        return Err("a variable needs a name".into());
    }
    Ok(EnvSetting { name: OsStr::from_bytes(name).to_owned(), value })
}

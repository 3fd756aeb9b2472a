//! Durations and sizes as people write them: `"10s"`, `"250ms"`, `"32KiB"`.

use std::time::Duration;

use super::node::{Node, Value};
use super::report::Problem;

/// Reads a duration; `None` for `"off"`.
pub(super) fn duration_or_off(node: &Node<'_>) -> Result<Option<Duration>, Problem> {
    match &node.value {
        Value::String(text) if text == "off" => Ok(None),
        _ => duration(node).map(Some).map_err(|problem| problem.help("\"off\" waits as long as it takes")),
    }
}

/// Reads a duration of more than nothing.
pub(super) fn duration(node: &Node<'_>) -> Result<Duration, Problem> {
    let wrong = |what: String| Err(Problem::at(&node.span, what));
    let text = match &node.value {
        Value::String(text) => text.as_ref(),
        Value::Integer(Some(number)) => {
            return wrong(format!("expected {DURATION}, found a number"))
                .map_err(|problem| problem.help(format!("with its unit: \"{number}s\"")));
        }
        other => return wrong(format!("expected {DURATION}, found {}", other.kind())),
    };
    if text == "off" {
        return wrong("this can't be off: every wait for a peer has an end".to_owned());
    }
    let (number, unit) = split(text);
    let unit = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" | "min" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        _ => return wrong(format!("expected {DURATION}")),
    };
    let Some(milliseconds) = number.and_then(|number: u64| number.checked_mul(unit)) else {
        return wrong(format!("expected {DURATION}"));
    };
    let duration = Duration::from_millis(milliseconds);
    if duration.is_zero() {
        return wrong("a wait of nothing would end everything at once".to_owned());
    }
    if duration > LONGEST {
        return wrong("a wait of more than a year".to_owned());
    }
    Ok(duration)
}

/// Reads a size in bytes, within bounds.
pub(super) fn size(node: &Node<'_>, least: u64, most: u64) -> Result<u64, Problem> {
    let wrong = |what: String| Problem::at(&node.span, what);
    let bytes = match &node.value {
        Value::Integer(number) => number.and_then(|number| u64::try_from(number).ok()),
        Value::String(text) => {
            let (number, unit) = split(text);
            let unit = match unit {
                "" | "B" => 1,
                "kB" | "KB" => 1000,
                "KiB" | "K" | "k" => 1 << 10,
                "MB" => 1_000_000,
                "MiB" | "M" | "m" => 1 << 20,
                "GB" => 1_000_000_000,
                "GiB" | "G" | "g" => 1 << 30,
                _ => return Err(wrong(format!("expected {SIZE}"))),
            };
            number.and_then(|number| number.checked_mul(unit))
        }
        other => return Err(wrong(format!("expected {SIZE}, found {}", other.kind()))),
    };
    let bytes = bytes.ok_or_else(|| wrong(format!("expected {SIZE}")))?;
    if (least..=most).contains(&bytes) {
        return Ok(bytes);
    }
    Err(wrong(match most {
        u64::MAX => format!("expected at least {least} bytes"),
        most => format!("expected {least} to {most} bytes"),
    }))
}

/// The number in front and the unit behind it.
fn split(text: &str) -> (Option<u64>, &str) {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    (number.parse().ok(), unit.trim_start())
}

/// What a duration looks like, for errors.
const DURATION: &str = "a duration such as \"10s\", \"250ms\", \"1m\" or \"2h\"";

/// What a size looks like, for errors.
const SIZE: &str = "a size such as 4096, \"32KiB\" or \"1MiB\"";

/// No wait is longer: one that is meant to be endless is "off".
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    fn node(text: &'static str) -> Node<'static> {
        Node { span: 0..0, value: Value::String(text.into()) }
    }

    #[test]
    fn durations() {
        for (text, ms) in [("10s", 10_000), ("250ms", 250), ("1m", 60_000), ("2h", 7_200_000), ("5 s", 5000)] {
            assert_eq!(duration(&node(text)).unwrap(), Duration::from_millis(ms), "{text}");
        }
        for text in ["", "10", "s", "0s", "-1s", "1.5s", "10x", "off", "99999999999999999999s", "9999999h"] {
            assert!(duration(&node(text)).is_err(), "{text}");
        }
        assert_eq!(duration_or_off(&node("off")).unwrap(), None);
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [("100", 100), ("32KiB", 32768), ("64kB", 64000), ("1MiB", 1 << 20), ("2 GiB", 2 << 30)] {
            assert_eq!(size(&node(text), 0, u64::MAX).unwrap(), bytes, "{text}");
        }
        for text in ["", "KiB", "1TiB", "1.5MiB", "-1", "99999999999GiB"] {
            assert!(size(&node(text), 0, u64::MAX).is_err(), "{text}");
        }
        assert!(size(&node("10"), 11, 20).is_err());
        assert!(size(&node("21"), 11, 20).is_err());
    }
}

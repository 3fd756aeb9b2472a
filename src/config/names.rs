//! The names that a file may use: what was meant by one that it may not, and what is known but not there yet.

/// The nearest of some names, where one is near enough to have been meant.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let longest = 1 + name.chars().count() / 4;
    known
        .into_iter()
        .map(|other| (strsim::damerau_levenshtein(name, other), other))
        .filter(|&(distance, other)| distance <= longest && distance < other.chars().count())
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, other)| other)
}

/// The help for a name that is not known: the nearest, or all that there are.
pub(crate) fn did_you_mean(name: &str, known: &[&str]) -> String {
    match nearest(&name.to_lowercase().replace(['_', ' '], "-"), known.iter().copied())
        .or_else(|| nearest(name, known.iter().copied()))
    {
        Some(other) => format!("did you mean `{other}`?"),
        None => format!("one of {}", listed(known)),
    }
}

/// Names as a sentence has them: `a`, `b` and `c`.
pub(crate) fn listed(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_is_offered() {
        let known = ["to", "also", "balance", "redirect", "respond", "least-connections"];
        for (name, help) in [
            ("redirct", "did you mean `redirect`?"),
            ("Balance", "did you mean `balance`?"),
            ("alos", "did you mean `also`?"),
            ("least_connections", "did you mean `least-connections`?"),
            ("x", "one of `to`, `also`, `balance`, `redirect`, `respond` and `least-connections`"),
        ] {
            assert_eq!(did_you_mean(name, &known), help, "{name}");
        }
    }
}

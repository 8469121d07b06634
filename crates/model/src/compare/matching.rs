//! Matches two lists of names by their longest common subsequence.
//!
//! This preserves order, so that an added stage does not shift those after it, and the first of several
//! equal names matches the first.

/// Returns pairs of indices in order; an entry of only one list has `None` on the other side.
pub(super) fn matched(a: &[String], b: &[String]) -> Vec<(Option<usize>, Option<usize>)> {
    // Common prefixes and suffixes need no table, which leaves little for runs of the same program.
    let same = |(x, y): &(&String, &String)| x == y;
    let head = a.iter().zip(b).take_while(same).count();
    let tail = a[head..].iter().rev().zip(b[head..].iter().rev()).take_while(same).count();
    let (middle_a, middle_b) = (&a[head..a.len() - tail], &b[head..b.len() - tail]);
    let mut pairs: Vec<_> = (0..head).map(|ix| (Some(ix), Some(ix))).collect();
    if middle_a.len().saturating_mul(middle_b.len()) <= MAX_CELLS {
        common(middle_a, middle_b, head, &mut pairs);
    } else {
        pairs.extend((0..middle_a.len()).map(|ix| (Some(head + ix), None)));
        pairs.extend((0..middle_b.len()).map(|ix| (None, Some(head + ix))));
    }
    let tails = (0..tail).map(|ix| (Some(a.len() - tail + ix), Some(b.len() - tail + ix)));
    pairs.extend(tails);
    pairs
}

/// Maximum table size: beyond it the table would take more memory than the traces.
const MAX_CELLS: usize = 64 << 20;

fn common(a: &[String], b: &[String], shift: usize, pairs: &mut Vec<(Option<usize>, Option<usize>)>) {
    let width = b.len() + 1;
    // Length of the longest common subsequence of the suffixes that start at each pair of positions.
    let mut longest = vec![0_u32; (a.len() + 1) * width];
    for x in (0..a.len()).rev() {
        for y in (0..b.len()).rev() {
            longest[x * width + y] = if a[x] == b[y] {
                longest[(x + 1) * width + y + 1] + 1
            } else {
                longest[(x + 1) * width + y].max(longest[x * width + y + 1])
            };
        }
    }
    let (mut x, mut y) = (0, 0);
    while x < a.len() || y < b.len() {
        if x < a.len() && y < b.len() && a[x] == b[y] {
            pairs.push((Some(shift + x), Some(shift + y)));
            (x, y) = (x + 1, y + 1);
        } else if y >= b.len() || (x < a.len() && longest[(x + 1) * width + y] >= longest[x * width + y + 1])
        {
            pairs.push((Some(shift + x), None));
            x += 1;
        } else {
            pairs.push((None, Some(shift + y)));
            y += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &str) -> Vec<String> {
        names.chars().map(String::from).collect()
    }

    #[test]
    fn insertions_do_not_shift_later_matches() {
        let both = |ix| (Some(ix), Some(ix));
        assert_eq!(matched(&of("abc"), &of("abc")), [both(0), both(1), both(2)]);
        assert_eq!(
            matched(&of("aab"), &of("axab")),
            [both(0), (None, Some(1)), (Some(1), Some(2)), (Some(2), Some(3))]
        );
        assert_eq!(matched(&of("ab"), &of("")), [(Some(0), None), (Some(1), None)]);
        assert_eq!(
            matched(&of("pabq"), &of("rbas")),
            [
                (Some(0), None),
                (Some(1), None),
                (None, Some(0)),
                (Some(2), Some(1)),
                (Some(3), None),
                (None, Some(2)),
                (None, Some(3))
            ]
        );
    }
}

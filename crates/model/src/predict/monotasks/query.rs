//! Changes to the query of a recorded job: the time of its operators, the rows that they emit, and its exchanges.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use pellucid_trace::{Part, Trace};

use super::operators::{self, Exchange, exchanges};
use super::recorded::{Operator, Recorded};
use super::rework;
use super::rows::{self, Flow};
use super::scenario::Scenario;
use crate::index::Ix;
use crate::numbers::ratio;
use crate::whatif::{Amount, WhatIfError};

/// Maximum number of operators, and of exchanges, that are candidates of the list of single changes.
const CANDIDATES: usize = 4;
/// Maximum number of operators that a message lists.
const LISTED: usize = 8;

/// Returns the changes that may bring most: to the operators, decoding and exchanges with most core time.
pub(super) fn candidates(trace: &Trace) -> Vec<String> {
    let mut numbers: BTreeMap<u32, usize> = BTreeMap::new();
    trace.operators.iter().for_each(|o| *numbers.entry(o.operator).or_default() += 1);
    // Of several jobs, a number does not say which.
    let ours: Vec<_> = trace.operators.iter().filter(|o| numbers[&o.operator] == 1).collect();
    // Decoding and exchanges are candidates of their own.
    let reads = |stage: u32| trace.operators.iter().any(|o| o.from == Some(stage));
    let computes = |part: Part, stage: u32| part != Part::Decode && (part != Part::Encode || !reads(stage));
    let mut largest: Vec<_> = ours.iter().filter(|o| o.cpu_ns > 0 && computes(o.part, o.stage)).collect();
    largest.sort_by_key(|o| Reverse(o.cpu_ns));
    let mut readers: Vec<(u64, u32)> = Vec::new();
    for reader in &ours {
        let Some(from) = reader.from else { continue };
        let writes = ours.iter().filter(|o| o.stage == from && o.part == Part::Encode);
        let cost = writes.map(|o| o.cpu_ns).fold(reader.cpu_ns, u64::saturating_add);
        readers.push((cost, reader.operator));
    }
    readers.sort_by_key(|(cost, _)| Reverse(*cost));
    let decodes = trace.operators.iter().any(|o| o.part == Part::Decode && o.cpu_ns > 0);
    let times = largest.iter().take(CANDIDATES).map(|o| format!("operator.{}.time=x0.5", o.operator));
    let exchanges = readers.iter().take(CANDIDATES).map(|(_, number)| format!("exchange.{number}=none"));
    times.chain(decodes.then(|| "decode.time=x0.5".into())).chain(exchanges).collect()
}

impl Scenario {
    pub(super) fn operator_time(&mut self, number: &str, factor: f64) -> Result<(), WhatIfError> {
        let changed = self.operator(&format!("operator.{number}.time"), number)?;
        let words = format!(
            "{} takes {factor} times its core time, {}",
            described(&self.recorded.operators[changed]),
            match self.recorded.operators[changed].once {
                true => "all in one multitask",
                false => "the same share of each multitask",
            }
        );
        self.rework(|recorded| {
            operators::scale_times(recorded, |ix| if ix == changed { factor } else { 1.0 });
        });
        self.assume(words);
        Ok(())
    }

    pub(super) fn decode_time(&mut self, factor: f64) -> Result<(), WhatIfError> {
        if !self.decodes() {
            return Err(self.unsupported("decode.time: this trace does not say how long decoding took"));
        }
        self.rework(|recorded| operators::decode_time(recorded, factor));
        self.assume(format!("decoding takes {factor} times its core time, the same share of each multitask"));
        Ok(())
    }

    /// Returns the position of the scan with a number.
    fn scan(&self, key: &str, number: &str) -> Result<usize, WhatIfError> {
        let scan = self.operator(key, number)?;
        match &self.recorded.operators[scan] {
            operator if is_scan(operator) => Ok(scan),
            operator => {
                let why = format!("{key}: {} reads no files; name a scan", described(operator));
                Err(WhatIfError::Usage(why))
            }
        }
    }

    /// Makes a scan read more or fewer bytes.
    pub(super) fn operator_bytes(&mut self, number: &str, factor: f64) -> Result<(), WhatIfError> {
        let key = format!("operator.{number}.bytes");
        let stage = self.recorded.operators[self.scan(&key, number)?].stage;
        let scans = self.recorded.operators.iter().filter(|o| o.stage == stage && is_scan(o)).count();
        if scans > 1 {
            return Err(WhatIfError::Usage(format!(
                "{key}: its stage has {scans} scans, whose bytes the trace does not tell apart; name a scan that is alone \
                 in its stage"
            )));
        }
        self.rework(|recorded| rework::scale_input(recorded, stage, factor));
        self.assume(format!(
            "scan {number} reads {factor} times its bytes, the same share of each multitask"
        ));
        Ok(())
    }

    /// Divides the stage of a scan into another number of multitasks.
    pub(super) fn operator_multitasks(&mut self, number: &str, amount: Amount) -> Result<(), WhatIfError> {
        let key = format!("operator.{number}.multitasks");
        let stage = self.recorded.operators[self.scan(&key, number)?].stage;
        if !rework::multitasks(&mut self.recorded, stage, amount) {
            return Err(WhatIfError::Usage(format!(
                "{key}: its multitasks are not independent of each other; name another scan"
            )));
        }
        self.assume(format!(
            "the stage of scan {number} is divided evenly; each multitask has the recorded overhead"
        ));
        Ok(())
    }

    /// Makes an operator emit more or fewer rows.
    pub(super) fn rows(&mut self, number: &str, factor: f64) -> Result<(), WhatIfError> {
        let key = format!("rows.{number}");
        let changed = self.operator(&key, number)?;
        let all = &self.recorded.operators;
        if all[changed].rows.is_none() {
            let emits: Vec<&Operator> = all.iter().filter(|o| o.rows > Some(0.0)).collect();
            return Err(WhatIfError::Usage(format!(
                "{key}: {} emits no rows; set the rows of an operator that emits some, for example {}",
                described(&all[changed]),
                listed(emits)
            )));
        }
        let flow = Flow::of(&self.recorded);
        let factors = flow.factors(changed, factor, self.reach);
        let unknown = flow.unknown(changed, factor);
        let bytes = rows::bytes(&self.recorded, &factors);
        let above = factors.iter().filter(|of| of.time != 1.0).count();
        let mut words = vec![format!(
            "{} emits {factor} times its rows in the same time; {above} operators take other times, by the rows that \
             they take",
            described(&all[changed])
        )];
        if !unknown.is_empty() {
            let unknown = listed(unknown.iter().map(|ix| &all[*ix]).collect());
            words.push(format!(
                "the rows that other operators then emit are not known ({unknown}): the interval reaches from as few \
                 changes as their recorded rows allow to changes in proportion"
            ));
            self.reaches = true;
        }
        self.rework(|recorded| {
            operators::scale_times(recorded, |ix| factors[ix].time);
            operators::scale_bytes(recorded, &bytes);
            operators::scale_rows(recorded, |ix| factors[ix].rows);
        });
        words.into_iter().for_each(|words| self.assume(words));
        Ok(())
    }

    /// Leaves out an exchange, which the operator that reads it names, or the only one that writes it.
    pub(super) fn no_exchange(&mut self, number: &str) -> Result<(), WhatIfError> {
        let key = format!("exchange.{number}");
        let named = self.operator(&key, number)?;
        let all = &self.recorded.operators;
        let reads = |ix: &usize| match all[named].part {
            Part::Encode => all[*ix].from == Some(all[named].stage),
            _ => *ix == named,
        };
        let readers: Vec<usize> = exchanges(all).filter(reads).collect();
        let [reader] = readers[..] else {
            let (why, way_out) = match readers.is_empty() {
                true => ("is not an exchange", exchanges(all).collect()),
                false => ("has several readers", readers),
            };
            if way_out.is_empty() {
                return Err(self.unsupported(&format!("{key}: this trace has no exchange with operators")));
            }
            let stages = |ix: &usize| {
                let from = all[*ix].from.map_or(0, Ix::at);
                format!("{} (stage {from} to {})", all[*ix].number, all[*ix].stage.at())
            };
            let more = if way_out.len() > LISTED { ", …" } else { "" };
            let way_out: Vec<String> = way_out.iter().take(LISTED).map(stages).collect();
            return Err(WhatIfError::Usage(format!(
                "{key}: {} {why}; set one of {}{more}",
                described(&all[named]),
                way_out.join(", ")
            )));
        };
        let Some(exchange) = Exchange::read_by(all, reader) else { return Ok(()) };
        let what = described(&all[reader]);
        self.rework(|recorded| exchange.leave_out(recorded));
        let (from, to) = (exchange.from.at(), exchange.to.at());
        let then = match exchange.held_by(&self.recorded) {
            None => {
                // The stages may be apart for another reason as well.
                self.reaches = true;
                if self.reach != rows::Reach::Least {
                    exchange.join_stages(&mut self.recorded);
                }
                format!("stage {to} runs within the multitasks of stage {from}")
            }
            Some(why) => format!("stage {to} still waits for stage {from}, because {why}"),
        };
        let writing = if exchange.sole { format!("the output of stage {from} and ") } else { String::new() };
        self.assume(format!("{writing}{what} take no time and move no bytes; {then}"));
        Ok(())
    }

    /// Returns the position of an operator that a key names by its number.
    fn operator(&self, key: &str, number: &str) -> Result<usize, WhatIfError> {
        let all = &self.recorded.operators;
        if all.is_empty() {
            let why = "this trace does not have the core time of operators: it was recorded by an older version, or elsewhere";
            return Err(self.unsupported(&format!("{key}: {why}")));
        }
        let mut found = (0..all.len()).filter(|ix| all[*ix].number.to_string() == number);
        let why = match (found.next(), found.next()) {
            (Some(ix), None) => return Ok(ix),
            (Some(_), Some(_)) => {
                let jobs = self.recorded.jobs.len();
                format!("{jobs} jobs of this trace have operators; use the trace of one job")
            }
            (None, _) => {
                let last = all.iter().map(|o| o.number).max().unwrap_or(0);
                let mut largest: Vec<&Operator> = all.iter().collect();
                largest.sort_by(|a, b| b.share.total_cmp(&a.share));
                format!(
                    "this trace has operators up to {last}, for example {}; `analyze --json` lists all in core.operators",
                    listed(largest)
                )
            }
        };
        Err(WhatIfError::Usage(format!("{key}: {why}")))
    }

    /// Changes the work, and makes resources faster for the analytic predictor by as much as theirs became less.
    pub(super) fn rework(&mut self, change: impl FnOnce(&mut Recorded)) {
        let before = rework::work(&self.recorded);
        change(&mut self.recorded);
        let after = rework::work(&self.recorded);
        for (ix, before) in before.rows() {
            match ratio(*before, after[ix]) {
                Some(faster) if faster > 0.0 => self.terms.faster[ix] *= faster,
                _ => self.terms.free[ix] |= *before > 0.0,
            }
        }
    }
}

fn is_scan(operator: &Operator) -> bool {
    operator.name.starts_with("Scan ")
}

/// Describes an operator: `operator 3 (Filter of stage 1)`.
fn described(operator: &Operator) -> String {
    format!("operator {} ({} of stage {})", operator.number, operator.name, operator.stage.at())
}

/// Lists operators: `3 (Filter), 7 (Sort), …`.
fn listed(operators: Vec<&Operator>) -> String {
    let more = if operators.len() > LISTED { ", …" } else { "" };
    let shown: Vec<String> =
        operators.iter().take(LISTED).map(|o| format!("{} ({})", o.number, o.name)).collect();
    shown.join(", ") + more
}

//! Names of functions, from the symbol tables of the files in memory.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;

use object::read::ReadCache;
use object::{Object, ObjectSymbol, SymbolKind};

use super::modules::Loaded;

/// Returns the name of the function at each address, or the name of the file in brackets if its symbols do not tell.
pub(super) fn names(addresses: BTreeSet<u64>, loaded: &[Loaded]) -> HashMap<u64, String> {
    let mut names = HashMap::new();
    for of in loaded {
        let inside: BTreeSet<u64> =
            addresses.range(of.range.clone()).map(|address| address.wrapping_sub(of.bias)).collect();
        if inside.is_empty() {
            continue;
        }
        let found = symbols(of, &inside).unwrap_or_default();
        let file = of.path.canonicalize().unwrap_or_else(|_| of.path.clone());
        let file = format!("[{}]", file.file_name().unwrap_or(file.as_os_str()).to_string_lossy());
        names.extend(inside.into_iter().map(|address| {
            let name = found.get(&address).cloned().unwrap_or_else(|| file.clone());
            // A stack separates its functions by semicolons, which are in the types of arrays.
            (address.wrapping_add(of.bias), name.replace(';', ","))
        }));
    }
    names
}

/// Returns the names of the functions at addresses of a file. Reads only its symbols, and keeps only the names needed.
fn symbols(
    of: &Loaded,
    addresses: &BTreeSet<u64>,
) -> Result<HashMap<u64, String>, Box<dyn std::error::Error>> {
    let cache = ReadCache::new(File::open(&of.path)?);
    let file = object::File::parse(&cache)?;
    let mut names = HashMap::new();
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        if symbol.kind() != SymbolKind::Text || symbol.size() == 0 {
            continue;
        }
        for address in addresses.range(symbol.address()..symbol.address().saturating_add(symbol.size())) {
            names.entry(*address).or_insert_with(|| demangled(symbol.name().unwrap_or("[unknown]")));
        }
    }
    Ok(names)
}

/// Returns the name of a function as in the source, without the hash of its crate.
fn demangled(symbol: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(symbol))
}

//! Start-up check that this machine supports the instructions the build uses.
//!
//! The project builds for x86-64-v3 (AVX2, BMI2, FMA: Intel Haswell of 2013, AMD
//! Excavator of 2015, and later), which speeds up scans and hashing by 13 %. On an older
//! machine such a program dies with "illegal instruction", so `main` checks first and
//! prints a remedy. The check queries the processor (CPUID), because
//! `is_x86_feature_detected!` is always `true` in a program compiled for the feature. It
//! also checks that the operating system saves the wide registers (XGETBV), which some
//! hypervisors and old kernels do not.
//!
//! The check cannot cover code that runs before `main`; this program has none that needs
//! these instructions.

// Builds for other targets do not need the check.
#![cfg_attr(not(all(target_arch = "x86_64", target_feature = "avx2")), allow(dead_code))]

/// The words of CPUID and XGETBV that contain the required bits.
#[derive(Debug, Clone, Copy)]
struct Processor {
    leaf_1_ecx: u32,
    leaf_7_ebx: u32,
    extended_1_ecx: u32,
    /// Register state that the operating system saves; 0 if XGETBV is unavailable.
    xcr0: u64,
}

/// CPUID leaf 1, ECX: the bits that x86-64-v3 requires, and OSXSAVE (bit 27).
const LEAF_1_ECX: &[(u32, &str)] = &[
    (1 << 0, "SSE3"),
    (1 << 9, "SSSE3"),
    (1 << 12, "FMA"),
    (1 << 13, "CMPXCHG16B"),
    (1 << 19, "SSE4.1"),
    (1 << 20, "SSE4.2"),
    (1 << 22, "MOVBE"),
    (1 << 23, "POPCNT"),
    (1 << 27, "OSXSAVE"),
    (1 << 28, "AVX"),
    (1 << 29, "F16C"),
];
/// CPUID leaf 7, EBX.
const LEAF_7_EBX: &[(u32, &str)] = &[(1 << 3, "BMI1"), (1 << 5, "AVX2"), (1 << 8, "BMI2")];
/// CPUID leaf 0x8000_0001, ECX.
const EXTENDED_1_ECX: &[(u32, &str)] = &[(1 << 0, "LAHF"), (1 << 5, "LZCNT")];
/// XCR0: SSE and AVX state.
const AVX_STATE: u64 = 0b110;

/// Returns the first missing instruction set of x86-64-v3.
///
/// The words are separate variables, since the compiler would fill an array of them with
/// the wide moves whose support this checks.
fn missing(processor: Processor) -> Option<&'static str> {
    first_clear(processor.leaf_1_ecx, LEAF_1_ECX)
        .or_else(|| first_clear(processor.leaf_7_ebx, LEAF_7_EBX))
        .or_else(|| first_clear(processor.extended_1_ecx, EXTENDED_1_ECX))
        .or_else(|| (processor.xcr0 & AVX_STATE != AVX_STATE).then_some("saved AVX registers"))
}

fn first_clear(word: u32, bits: &'static [(u32, &'static str)]) -> Option<&'static str> {
    bits.iter().find(|(mask, _)| word & mask != *mask).map(|(_, name)| *name)
}

/// Exits with code 1 and prints a remedy if this machine cannot run the build. Does
/// nothing in a build for the baseline or another architecture.
pub fn check() {
    #[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
    if let Some(name) = missing(detect()) {
        print("error: this machine lacks ");
        print(name);
        print(
            ", which this build of pellucid requires (x86-64-v3).\n\
             Rebuild on this machine:\n\n    \
             RUSTFLAGS=\"-C target-cpu=native\" cargo build --release --workspace\n",
        );
        // SAFETY: ends the process before anything that needs cleanup has started.
        unsafe { libc::_exit(1) };
    }
}

/// Writes to standard error with a system call, since the standard library may use the
/// missing instructions.
#[inline(never)]
fn print(text: &str) {
    // SAFETY: the pointer and length are those of a live `str`.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

#[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
fn detect() -> Processor {
    use core::arch::x86_64::{__cpuid, __cpuid_count};

    let highest = __cpuid(0).eax;
    let leaf_1_ecx = __cpuid(1).ecx;
    let leaf_7_ebx = if highest >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
    let extended_1_ecx = if __cpuid(0x8000_0000).eax >= 0x8000_0001 { __cpuid(0x8000_0001).ecx } else { 0 };
    let xcr0 = if leaf_1_ecx & (1 << 27) == 0 {
        0
    } else {
        let (low, high): (u32, u32);
        // SAFETY: OSXSAVE is set, so the instruction is available; it only reads XCR0.
        unsafe {
            core::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack));
        }
        u64::from(high) << 32 | u64::from(low)
    };
    Processor { leaf_1_ecx, leaf_7_ebx, extended_1_ecx, xcr0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASWELL: Processor =
        Processor { leaf_1_ecx: 0x7ffa_fbff, leaf_7_ebx: 0x0000_27ab, extended_1_ecx: 0x21, xcr0: 7 };

    #[test]
    fn v3_processor_passes() {
        assert_eq!(missing(HASWELL), None);
    }

    #[test]
    fn missing_instruction_set_is_named() {
        // Sandy Bridge: AVX, but neither FMA nor AVX2.
        assert_eq!(missing(Processor { leaf_1_ecx: 0x1fba_e3ff, ..HASWELL }), Some("FMA"));
        assert_eq!(missing(Processor { leaf_7_ebx: 0x0000_2789, ..HASWELL }), Some("AVX2"));
        assert_eq!(missing(Processor { extended_1_ecx: 0x01, ..HASWELL }), Some("LZCNT"));
        let unsaved = missing(Processor { xcr0: 0b011, ..HASWELL });
        assert_eq!(unsaved, Some("saved AVX registers"));
    }

    #[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
    #[test]
    fn current_machine_passes() {
        assert_eq!(missing(detect()), None);
    }
}

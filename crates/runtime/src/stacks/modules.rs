//! The program and the libraries in memory, with the tables by which a stack is followed.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use framehop::{ExplicitModuleSectionInfo, Module, MustNotAllocateDuringUnwind, Unwinder as _};

/// Follows stacks without allocating memory.
pub(super) type Unwinder = framehop::UnwinderNative<&'static [u8], MustNotAllocateDuringUnwind>;

/// The encoding of the only address in the header of unwind tables that linkers write: 4 bytes, relative to itself.
const PC_RELATIVE_4: u8 = 0x1b;

/// A program or library in memory.
#[derive(Debug)]
pub(super) struct Loaded {
    pub path: PathBuf,
    /// Difference between addresses in memory and in the file.
    pub bias: u64,
    pub range: Range<u64>,
}

/// Returns everything that is in memory now. Libraries that are loaded later stay unknown.
pub(super) fn list() -> (Vec<Loaded>, Unwinder) {
    let mut found = (Vec::new(), Unwinder::new());
    // SAFETY: `see` matches the type of the callback, and gets `found` as its data.
    unsafe { libc::dl_iterate_phdr(Some(see), (&raw mut found).cast()) };
    found
}

unsafe extern "C" fn see(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: the caller passes a valid description, and the data of `list`.
    let (info, (loaded, unwinder)) = unsafe { (&*info, &mut *data.cast::<(Vec<Loaded>, Unwinder)>()) };
    // SAFETY: the description has this number of headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    // SAFETY: the name is a C string, or null.
    let name = if info.dlpi_name.is_null() { c"" } else { unsafe { CStr::from_ptr(info.dlpi_name) } };
    let bias = info.dlpi_addr;
    let segment = |header: &libc::Elf64_Phdr| {
        let start = bias.wrapping_add(header.p_vaddr);
        start..start.wrapping_add(header.p_memsz)
    };
    let segments: Vec<Range<u64>> =
        headers.iter().filter(|h| h.p_type == libc::PT_LOAD).map(segment).collect();
    let ends = segments.iter().map(|s| s.start).min().zip(segments.iter().map(|s| s.end).max());
    let Some((start, end)) = ends else { return 0 };
    let path = match name.to_bytes() {
        // The program itself has no name.
        b"" => PathBuf::from("/proc/self/exe"),
        name => PathBuf::from(OsStr::from_bytes(name)),
    };
    let header = headers.iter().find(|h| h.p_type == libc::PT_GNU_EH_FRAME).map(segment);
    let tables = header.and_then(|header| {
        // SAFETY: the segments of a loaded module are mapped, and a module of this process is not unloaded.
        let tables = unsafe { tables(&header, &segments) }?;
        Some((header, tables))
    });
    if let Some((header, tables)) = tables {
        let in_file = |range: &Range<u64>| range.start.wrapping_sub(bias)..range.end.wrapping_sub(bias);
        // SAFETY: as above.
        let bytes = |range: &Range<u64>| unsafe { bytes(range) };
        let sections = ExplicitModuleSectionInfo {
            eh_frame_hdr_svma: Some(in_file(&header)),
            eh_frame_hdr: Some(bytes(&header)),
            eh_frame_svma: Some(in_file(&tables)),
            eh_frame: Some(bytes(&tables)),
            ..ExplicitModuleSectionInfo::default()
        };
        unwinder.add_module(Module::new(path.to_string_lossy().into_owned(), start..end, bias, sections));
    }
    loaded.push(Loaded { path, bias, range: start..end });
    0
}

/// Returns the range of `.eh_frame`, to the end of its segment: only its header says where it begins.
///
/// # Safety
/// The header and the segments are mapped.
unsafe fn tables(header: &Range<u64>, segments: &[Range<u64>]) -> Option<Range<u64>> {
    // SAFETY: the caller's.
    let [_version, encoding, _, _, offset @ ..] = unsafe { bytes(header) }.first_chunk::<8>()?;
    if *encoding != PC_RELATIVE_4 {
        return None;
    }
    let start = header.start.wrapping_add(4).wrapping_add_signed(i64::from(i32::from_le_bytes(*offset)));
    let segment = segments.iter().find(|segment| segment.contains(&start))?;
    Some(start..segment.end)
}

/// # Safety
/// The range is mapped for as long as the process lives.
unsafe fn bytes(range: &Range<u64>) -> &'static [u8] {
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts(range.start as *const u8, (range.end - range.start) as usize) }
}

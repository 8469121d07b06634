//! Timers of threads, and the signal handler that samples them.
//!
//! The handler runs at any instruction, also while the allocator holds its lock. It therefore only reads registers, the
//! thread's own stack, unwind tables and atomics, and writes into memory that was allocated before.

use std::cell::{Cell, UnsafeCell};
use std::collections::{BTreeSet, HashMap};
use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, zeroed};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};
use std::{io, ptr};

use framehop::{MustNotAllocateDuringUnwind, Unwinder as _};
use pellucid_trace::{Stack, StageIx};

use super::buffer::{Buffer, Next};
use super::modules::{self, Loaded, Unwinder};
use super::{NO_OPERATOR, OPERATOR, Stacks, symbols};

type Cache = framehop::CacheNative<MustNotAllocateDuringUnwind>;

/// Words of a thread's buffer: at 60 functions a sample, minutes of core time in one monotask.
const BUFFER_WORDS: usize = 1 << 20;
const PERIOD_NS: i64 = 1_000_000_000 / Stack::RATE_HZ as i64;

/// The sampler of this process.
pub(super) struct Sampler {
    loaded: Vec<Loaded>,
    unwinder: Unwinder,
}

impl Sampler {
    /// Installs the signal handler.
    ///
    /// # Errors
    /// Returns the reason if another profiler has a handler, or the kernel refuses a timer.
    pub fn new() -> Result<Sampler, String> {
        install()?;
        drop(Timer::new(ptr::null())?);
        let (loaded, unwinder) = modules::list();
        Ok(Sampler { loaded, unwinder })
    }

    /// Starts to sample this thread. `base` is in the frame of its main function.
    pub fn thread(&self, base: *const u8) -> Result<SampledThread, String> {
        let state = Box::new(State {
            unwinder: self.unwinder.clone(),
            cache: UnsafeCell::new(Cache::new_in()),
            stack: stack().map_err(|e| format!("cannot find the stack of a thread: {e}"))?,
            base: base as u64,
            buffer: Buffer::new(BUFFER_WORDS),
            running: AtomicBool::new(false),
        });
        // In a library that was loaded later, the first access to a thread-local may allocate.
        OPERATOR.get();
        let timer = Timer::new(&raw const *state)?;
        timer.start()?;
        Ok(SampledThread { _timer: timer, state })
    }

    pub fn names(&self, addresses: BTreeSet<u64>) -> HashMap<u64, String> {
        symbols::names(addresses, &self.loaded)
    }
}

/// A thread that is sampled until this is dropped.
pub(crate) struct SampledThread {
    /// Dropped before the state that its signals refer to.
    _timer: Timer,
    state: Box<State>,
}

impl SampledThread {
    /// Begins a monotask.
    pub fn begin(&self) {
        self.state.running.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    /// Ends a monotask of `stage`, and adds its samples to those of its job.
    pub fn end(&self, stage: StageIx, stacks: &Stacks) {
        compiler_fence(Ordering::SeqCst);
        self.state.running.store(false, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.state
            .buffer
            .drain(NO_OPERATOR, |operator, weight, frames| stacks.add(stage, operator, weight, frames));
    }
}

/// The state of a thread that its signal handler uses.
struct State {
    unwinder: Unwinder,
    /// Used by the handler only, which does not interrupt itself.
    cache: UnsafeCell<Cache>,
    stack: Range<u64>,
    /// An address in the frame of the thread's main function.
    base: u64,
    buffer: Buffer,
    /// True while a monotask runs.
    running: AtomicBool,
}

impl State {
    /// Adds a sample. Async-signal-safe.
    fn sample(&self, registers: Registers, weight: u32) {
        let Registers { address, top, unwind } = registers;
        // A recursive function may have moved to a stack of its own, whose end is not known.
        let known = self.stack.contains(&top);
        let highest = Cell::new(0);
        let mut read = |address: u64| {
            if !known || address < top || address > self.stack.end - 8 {
                return Err(());
            }
            highest.set(highest.get().max(address));
            // SAFETY: the used part of this thread's stack is readable.
            Ok(unsafe { ptr::read_unaligned(address as *const u64) })
        };
        // SAFETY: the handler is the only user, and its signal is blocked while it runs.
        let cache = unsafe { &mut *self.cache.get() };
        let mut frames = self.unwinder.iter_frames(address, unwind, cache, &mut read);
        self.buffer.push(OPERATOR.get(), weight, || match frames.next() {
            // The stack was read up to the frame of the thread's main function.
            _ if highest.get() >= self.base => Next::End,
            Ok(Some(frame)) => Next::Address(frame.address_for_lookup()),
            Ok(None) | Err(_) => Next::Broken,
        });
    }
}

/// The registers of the interrupted code.
struct Registers {
    address: u64,
    /// The top of the stack, which is its lowest address.
    top: u64,
    unwind: framehop::UnwindRegsNative,
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let register = |name: c_int| context.uc_mcontext.gregs[name as usize] as u64;
    let (address, top) = (register(libc::REG_RIP), register(libc::REG_RSP));
    Registers { address, top, unwind: framehop::UnwindRegsNative::new(address, top, register(libc::REG_RBP)) }
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let machine = &context.uc_mcontext;
    let unwind = framehop::UnwindRegsNative::new(machine.regs[30], machine.sp, machine.regs[29]);
    Registers { address: machine.pc, top: machine.sp, unwind }
}

unsafe extern "C" fn handle(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    /// The part of a `siginfo_t` that a timer sets (sigaction(2)).
    #[repr(C)]
    struct TimerInfo {
        _signal: [c_int; 4],
        _timer: c_int,
        overrun: c_int,
        state: *const State,
    }
    // SAFETY: the kernel passes valid pointers.
    let (info, code, context) =
        unsafe { (&*info.cast::<TimerInfo>(), (*info).si_code, &*context.cast::<libc::ucontext_t>()) };
    if code != libc::SI_TIMER || info.state.is_null() {
        return;
    }
    // SAFETY: the state outlives its timer, and this is its thread.
    let state = unsafe { &*info.state };
    if state.running.load(Ordering::Relaxed) {
        // Periods that passed before the signal was handled are in the overrun.
        state.sample(registers(context), 1 + u32::try_from(info.overrun).unwrap_or(0));
    }
}

/// Installs the handler for the whole process; it stays, since a late signal would end the process.
fn install() -> Result<(), String> {
    let failed = |e: io::Error| format!("cannot handle SIGPROF: {e}");
    // SAFETY: a zeroed `sigaction` is valid, and the handler is async-signal-safe.
    unsafe {
        let mut before: libc::sigaction = zeroed();
        if libc::sigaction(libc::SIGPROF, ptr::null(), &mut before) != 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        let own = handle as *const () as usize;
        if ![libc::SIG_DFL, libc::SIG_IGN, own].contains(&before.sa_sigaction) {
            return Err("another profiler of this process handles SIGPROF".to_owned());
        }
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = own;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        if libc::sigaction(libc::SIGPROF, &action, ptr::null_mut()) != 0 {
            return Err(failed(io::Error::last_os_error()));
        }
    }
    Ok(())
}

/// Returns the addresses of this thread's stack.
fn stack() -> io::Result<Range<u64>> {
    let check = |code: c_int| if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) };
    let (mut attributes, mut start, mut bytes) = (MaybeUninit::uninit(), ptr::null_mut(), 0);
    // SAFETY: the first call initializes the attributes, and the last frees them.
    unsafe {
        check(libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()))?;
        let found = check(libc::pthread_attr_getstack(attributes.as_ptr(), &mut start, &mut bytes));
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        found?;
    }
    let start = start as u64;
    Ok(start..start + bytes as u64)
}

/// A timer of this thread's core time. Deleting it on its thread leaves no signal behind: a pending one is handled
/// before the call returns.
struct Timer(libc::timer_t);

impl Timer {
    fn new(state: *const State) -> Result<Timer, String> {
        let mut timer: libc::timer_t = ptr::null_mut();
        // SAFETY: a zeroed `sigevent` is valid, and the pointers are.
        let created = unsafe {
            let mut event: libc::sigevent = zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGPROF;
            event.sigev_value.sival_ptr = state.cast_mut().cast();
            // The C library has a function for it since glibc 2.30 only.
            event.sigev_notify_thread_id = libc::syscall(libc::SYS_gettid) as libc::pid_t;
            libc::timer_create(libc::CLOCK_THREAD_CPUTIME_ID, &mut event, &mut timer)
        };
        if created != 0 {
            return Err(format!("the kernel refuses a timer of core time: {}", io::Error::last_os_error()));
        }
        Ok(Timer(timer))
    }

    fn start(&self) -> Result<(), String> {
        let period = libc::timespec { tv_sec: 0, tv_nsec: PERIOD_NS };
        let every = libc::itimerspec { it_interval: period, it_value: period };
        // SAFETY: the timer exists, and the pointers are valid.
        if unsafe { libc::timer_settime(self.0, 0, &every, ptr::null_mut()) } != 0 {
            return Err(format!(
                "the kernel refuses to start a timer of core time: {}",
                io::Error::last_os_error()
            ));
        }
        Ok(())
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the timer exists.
        unsafe { libc::timer_delete(self.0) };
    }
}

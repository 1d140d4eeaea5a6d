//! Which core a thread runs on, and which it keeps off. On systems other than Linux: nowhere and none.
//!
//! Linux wakes a thread where it last ran when no core is idle. Beside another busy program that may be the core of the
//! thread that woke it, and there it waits for that one's time slice to end: for many runs of a small plan, and again in the
//! next, though the other core's program may well be one that has to give way. So a team's workers keep off their leader's
//! core, wherever that one goes.

#[cfg(target_os = "linux")]
mod system {
    use libc::{CPU_CLR, CPU_COUNT, CPU_SETSIZE, cpu_set_t};

    /// A thread, as the system numbers them.
    pub type Thread = libc::pid_t;

    /// The running thread.
    pub fn thread() -> Thread {
        // SAFETY: takes nothing and cannot fail. Not by `gettid`, which older C libraries do not have.
        unsafe { libc::syscall(libc::SYS_gettid) as Thread }
    }

    /// The core that this thread runs on, unless it has just moved.
    pub fn core() -> Option<usize> {
        // SAFETY: takes nothing; a negative number says that it is not known.
        usize::try_from(unsafe { libc::sched_getcpu() }).ok()
    }

    /// The cores that a thread may run on; 0 is the running one.
    pub(in crate::cpu) fn allowed(thread: Thread) -> Option<cpu_set_t> {
        // SAFETY: a set of cores is an array of bits, for which zeros are valid.
        let mut set: cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set has room for as many bytes as the call is told.
        let outcome = unsafe { libc::sched_getaffinity(thread, size_of::<cpu_set_t>(), &mut set) };
        (outcome == 0).then_some(set)
    }

    /// Lets a thread of this process run on all cores that the running thread may use, but this one. Where that is not
    /// possible all stays as it is.
    pub fn keep_off(thread: Thread, core: usize) {
        let Some(mut set) = allowed(0).filter(|_| core < CPU_SETSIZE as usize) else { return };
        // SAFETY: the core is one of the set's bits.
        let left = unsafe {
            CPU_CLR(core, &mut set);
            CPU_COUNT(&set)
        };
        if left > 0 {
            // SAFETY: the set is as long as the call is told. A thread that has ended is an error without effect.
            unsafe { libc::sched_setaffinity(thread, size_of::<cpu_set_t>(), &set) };
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub type Thread = ();

    pub fn thread() -> Thread {}

    pub fn core() -> Option<usize> {
        None
    }

    pub fn keep_off(_thread: Thread, _core: usize) {}
}

pub(super) use system::*;

//! Findings about the jobs' time: causes, and advice with the setting to paste.

pub(crate) mod advice;
pub(crate) mod causes;
pub(crate) mod evidence;
pub(crate) mod settings;

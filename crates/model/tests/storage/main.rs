//! Tests of the analyses of storage: rankings of compositions, and the doctor.

mod doctor;
mod rank;

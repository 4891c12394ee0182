//! A shootout: every workload of storage on several targets in turns, and one table of what came of it.
//!
//! ```text
//!             targets (sides)
//! workloads   A  B  C        round 1: each workload on A B C, round 2: on C B A, in pairs as `harness::series` draws them
//! (rows)      .  .  .        a cell: the runs of one workload on one target
//! ```
//!
//! 1. [`side`] reads the targets and their names; [`row`] lists the workloads, or [`matrix`] reads them from a file.
//! 2. [`plan`] makes the cells of both and checks them all, before anything is measured.
//! 3. [`measure`] makes the runs, with [`hooks`] around each. The runs of a workload are one series of the store.
//! 4. [`result`] judges the cells by `report::compare`; [`limit`] names what held each up; [`advice`] fits what a benchmark advises.
//! 5. [`text`] prints the table, [`page`] draws it.
//!
//! Always holds: a cell is judged by its VALID runs alone, and one that has none says so and is in no sentence and no ratio;
//! whatever ends the shootout, what was measured until then is shown.
//! Not here: what a workload does (the benchmarks), the statistics (`report::compare`).

pub mod advice;
pub mod hooks;
pub mod limit;
pub mod matrix;
pub mod measure;
pub mod page;
pub mod plan;
pub mod result;
pub mod row;
pub mod side;
pub mod text;

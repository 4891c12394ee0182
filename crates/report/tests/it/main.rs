//! Records stored, compared and drawn; pages in a browser.

mod browser;
mod census_page;
mod page;
mod record_page;
mod sample;
mod storing;

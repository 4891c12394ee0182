//! Records stored, compared and drawn; pages in a browser.

mod browser;
mod made_up;
mod page;
mod record_page;
mod sample;
mod storing;
mod views_page;

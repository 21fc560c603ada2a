"""One file per API; `table` says which, `dispatch` calls them."""

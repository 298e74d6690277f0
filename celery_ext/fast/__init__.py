"""Fast publishing: single calls are sent by templates, which are made once for each task and set of options."""

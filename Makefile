.DEFAULT_GOAL := help
.PHONY: help check docs

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

check: ## all that must hold before a change goes in
	bash .ci/run

docs: ## regenerate docs/reference.md, docs/bounds.md, the state diagram, the import law, the command line's table
	.venv/bin/python -m debug_relay.protocol.docs.reference > docs/reference.md
	.venv/bin/python -m debug_relay.protocol.docs.client_table > supervisor/cli/client/operations.json
	.venv/bin/python -m tests.meta.diagram
	.venv/bin/python -m tests.meta.bounds

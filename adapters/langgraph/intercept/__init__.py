"""Where calls are intercepted: LangChain's tools, functions, models, stores, MCP sessions."""

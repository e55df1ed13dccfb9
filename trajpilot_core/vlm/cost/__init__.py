"""What asking models costs: questions, tokens, bytes, memory and hours, stated before anything is asked."""

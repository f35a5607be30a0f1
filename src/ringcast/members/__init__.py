"""Members of a group as processes of this machine: started, watched and mistreated."""
